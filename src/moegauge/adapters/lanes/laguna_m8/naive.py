"""A wrong candidate that compilers make of right-looking source: BF16 roundings written as conversions.

``x.to(bfloat16).to(float32)`` is folded away by the XPU compiler, and the interpreter truncates instead of rounding.
The lane keeps this kernel to show that its corpus kills it. Arguments as those of ``kernels.gather_finalize``.
"""

import triton
import triton.language as tl


@triton.jit
def gather_finalize(out, rows, weights, shared, hidden: tl.constexpr, top_k: tl.constexpr, block: tl.constexpr):
    """The candidate's sequence on BF16 pointers, with conversions for roundings."""
    token = tl.program_id(0)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    added = tl.load(shared + token * hidden + columns)
    accum = tl.zeros((block,), tl.float32)
    for slot in tl.static_range(top_k):
        row = token * top_k + slot
        accum = accum + tl.load(rows + row * hidden + columns).to(tl.float32) * tl.load(weights + row)
    scaled = (accum.to(tl.bfloat16).to(tl.float32) * 2.5).to(tl.bfloat16)
    tl.store(out + token * hidden + columns, (added.to(tl.float32) + scaled.to(tl.float32)).to(tl.bfloat16))
