"""A slope in the count: s + m_h · c."""

import triton
import triton.language as tl

from milepost.ops.triton._kernels import arithmetic
from milepost.ops.triton._kernels.policies.softmax import shift  # noqa: F401  # a policy's


@triton.jit
def logits(
    content,
    gates,
    carry,
    given,
    batch,
    head,
    query,
    key,
    tile,
    const: tl.constexpr,
    KEYS: tl.constexpr,
    BAND: tl.constexpr,
    DIAGONAL: tl.constexpr,
):
    if BAND:  # which has no end: a count always matters
        whole, part = arithmetic.count(gates, carry, const.N, KEYS, const.APPROXIMATE)
        slope = tl.zeros_like(content) + tl.load(given.slopes + head) * 1.4426950408889634
        return content + slope * (whole.to(tl.float32) + part), whole, part, slope
    else:
        return content, content, content, content
