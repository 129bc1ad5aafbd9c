"""What is left of a stick: log₂ of β Π (1 − β) over newer keys, β = σ(s)."""

import triton
import triton.language as tl

from milepost.ops.triton._kernels import arithmetic


@triton.jit
def breaks(content, seen):
    """−log₂(1 − β) and log₂ β; unseen keys break nothing."""
    tail = arithmetic.log2(1.0 + tl.exp2(-tl.abs(content)))
    most = arithmetic.MOST_OF_A_STICK
    spent = tl.minimum(tl.maximum(content, 0.0) + tail, most)
    return tl.where(seen, spent, 0.0), tl.minimum(content, 0.0) - tail
