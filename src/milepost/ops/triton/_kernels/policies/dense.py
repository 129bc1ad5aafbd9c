"""A number for each pair: s + b_ij."""

import triton
import triton.language as tl

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
    bias = given.bias
    at = bias.at + batch.to(tl.int64) * bias.batch + head.to(tl.int64) * bias.head
    inside = (query < given.queries) & (key >= 0) & (key < given.keys)
    there = tl.load(at + query.to(tl.int64) * bias.time + key, mask=inside, other=0.0)
    # In base 2. Many a mask is the lowest float: what is finite stays so
    there = tl.where(
        (there == float("inf")) | (there == float("-inf")),
        there,
        tl.maximum(tl.minimum(there, 2e38), -2e38) * 1.4426950408889634,
    )
    return content + there, content, content, content
