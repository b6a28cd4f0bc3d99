"""The candidate as a programmatic dependent launch: it may start before the kernel ahead of it has ended. CUDA alone.

Its own module, because the names it uses are not there in Triton for other platforms. Nothing in a lane runs it; the
benchmark reports it apart.
"""

import triton
import triton.language as tl

from moegauge.adapters.lanes.laguna_m8.kernels import accumulated, rounded, widened


@triton.jit
def gather_finalize_dependent(
    out, rows, weights, shared, hidden: tl.constexpr, top_k: tl.constexpr, block: tl.constexpr
):
    """Waits for the writes of the kernel ahead before its first load, and lets the next one start at once."""
    tl.extra.cuda.gdc_launch_dependents()
    token = tl.program_id(0)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    tl.extra.cuda.gdc_wait()
    added = tl.load(shared + token * hidden + columns)
    routed = rounded(accumulated(rows, weights, token, columns, hidden, top_k))
    scaled = rounded(widened(routed) * 2.5)
    tl.store(out + token * hidden + columns, rounded(widened(added) + widened(scaled)))
