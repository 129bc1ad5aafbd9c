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


@triton.jit
def weights(content, seen, carry, N: tl.constexpr, KEYS: tl.constexpr):
    """Each key's share of the stick, what it breaks of it, and log₂ β; `carry` is newer tiles'."""
    spent, log_beta = breaks(content, seen)
    before = arithmetic.spent_before(spent, carry, N, KEYS)
    return tl.where(seen, tl.exp2(log_beta - before), 0.0), spent, log_beta
