"""Triton kernels of laguna_m8, one source for CUDA, XPU and the interpreter.

BF16 tensors are read and written as uint16 words. Every BF16 rounding is done in integers, so that no compiler knows
a conversion it could take away, no device chooses a NaN, and a subnormal word is never an operand of a conversion. FP32
products and sums are plain operators: launch with ``enable_fp_fusion=False``, and see the compiled code
(``moegauge.adapters.lanes.laguna_m8.compiled``) for what became of them.

Arguments: rows uint16 [80, 3072], weights FP32 [8, 10], shared, routed, scaled and out uint16 [8, 3072], route_map
int32 [8, 10]. The grid is (8 tokens, hidden / block).
"""

import triton
import triton.language as tl


@triton.jit
def widened(words):
    """FP32 numbers of BF16 words; exact."""
    return (words.to(tl.uint32) << 16).to(tl.float32, bitcast=True)


@triton.jit
def rounded(numbers):
    """BF16 words of FP32 numbers: nearest, ties to even, 0x7FC0 for every NaN."""
    words = numbers.to(tl.uint32, bitcast=True)
    upper = (words + 0x7FFF + ((words >> 16) & 1)) >> 16
    return tl.where((words & 0x7FFFFFFF) > 0x7F800000, 0x7FC0, upper).to(tl.uint16)


@triton.jit
def accumulated(rows, weights, token, columns, hidden: tl.constexpr, top_k: tl.constexpr):
    """FP32 sum over slots 0 to top_k - 1, from +0; product and sum rounded apart."""
    accum = tl.zeros(columns.shape, tl.float32)
    for slot in tl.static_range(top_k):
        row = token * top_k + slot
        accum = accum + widened(tl.load(rows + row * hidden + columns)) * tl.load(weights + row)
    return accum


@triton.jit
def accumulated_by_map(rows, weights, route_map, token, columns, hidden: tl.constexpr, top_k: tl.constexpr):
    """The same sum over the rows of a map; a slot of -1 adds nothing."""
    accum = tl.zeros(columns.shape, tl.float32)
    for slot in tl.static_range(top_k):
        row = tl.load(route_map + token * top_k + slot)
        words = tl.load(rows + row * hidden + columns, mask=(columns >= 0) & (row != -1), other=0)
        product = widened(words) * tl.load(weights + token * top_k + slot)
        accum = tl.where(row != -1, accum + product, accum)
    return accum


@triton.jit
def moe_gather(
    routed,
    rows,
    weights,
    route_map,
    mapped: tl.constexpr,
    hidden: tl.constexpr,
    top_k: tl.constexpr,
    block: tl.constexpr,
):
    """Incumbent, first launch: the weighted sum of each token's rows, rounded to BF16."""
    token = tl.program_id(0)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    if mapped:
        accum = accumulated_by_map(rows, weights, route_map, token, columns, hidden, top_k)
    else:
        accum = accumulated(rows, weights, token, columns, hidden, top_k)
    tl.store(routed + token * hidden + columns, rounded(accum))


@triton.jit
def scale_add(out, shared, routed, hidden: tl.constexpr, block: tl.constexpr):
    """Incumbent, second launch: 2.5 times the routed words, rounded, plus the shared words, rounded."""
    places = tl.program_id(0) * hidden + tl.program_id(1) * block + tl.arange(0, block)
    scaled = rounded(widened(tl.load(routed + places)) * 2.5)
    tl.store(out + places, rounded(widened(tl.load(shared + places)) + widened(scaled)))


@triton.jit
def gather_finalize(out, rows, weights, shared, hidden: tl.constexpr, top_k: tl.constexpr, block: tl.constexpr):
    """Candidate: both in one launch, with the same three roundings."""
    token = tl.program_id(0)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    added = tl.load(shared + token * hidden + columns)
    routed = rounded(accumulated(rows, weights, token, columns, hidden, top_k))
    scaled = rounded(widened(routed) * 2.5)
    tl.store(out + token * hidden + columns, rounded(widened(added) + widened(scaled)))


@triton.jit
def gather_finalize_diagnostic(
    routed, scaled, out, rows, weights, shared, hidden: tl.constexpr, top_k: tl.constexpr, block: tl.constexpr
):
    """The candidate's sequence, with the routed and the scaled words stored too. Never timed."""
    token = tl.program_id(0)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    places = token * hidden + columns
    added = tl.load(shared + places)
    routed_words = rounded(accumulated(rows, weights, token, columns, hidden, top_k))
    scaled_words = rounded(widened(routed_words) * 2.5)
    tl.store(routed + places, routed_words)
    tl.store(scaled + places, scaled_words)
    tl.store(out + places, rounded(widened(added) + widened(scaled_words)))


@triton.jit
def empty():
    """Nothing: what a launch alone costs."""
