"""What a table holds at the count: s + z_i[min(c, P)], linearly interpolated."""

import triton
import triton.language as tl

from milepost.ops.triton._kernels import arithmetic
from milepost.ops.triton._kernels.policies import distance


@triton.jit
def entries(given, batch, head, query):
    """Where the `lookup` of each query begins; rows past the last one read the last one's."""
    row = (batch * given.heads + head).to(tl.int64) * given.queries
    row += tl.minimum(query, given.queries - 1)
    return given.lookup + row * (2 * (given.last + 1))


@triton.jit
def shift(given, batch, head, query):
    common = tl.load(entries(given, batch, head, query) + 2 * given.last)
    if given.distance is not None:
        common += distance.shift(given, batch, head, query)
    return common


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
    if BAND:
        whole, part = arithmetic.count(gates, carry, const.N, KEYS, const.APPROXIMATE)
        # The last entry has a slope of 0, so that past it `part` does not matter
        entry = tl.maximum(tl.minimum(whole, given.last), 0)
        z, slope = arithmetic.pair_at(entries(given, batch, head, query) + 2 * entry)
        content += z + part * slope
        if given.distance is not None:
            content += distance.at_distance(given, batch, head, query, key)
        # At a whole count the slope is 0, as in the paper's listing
        return content, whole, part, tl.where(part > 0, slope, 0.0)
    else:
        return content, content, content, content
