"""What was forgotten since the key: s + Λ_i − Λ_j."""

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
    """Λ_i − Λ_j = (Λ_i − Λ_m) + (Λ_m − Λ_j), where m is the tile's newest key, older than i.

    Neither cancels the other then. On the diagonal m may be newer, and the difference is in fp64.
    """
    T = given.keys
    row = (batch * given.heads + head).to(tl.int64) * T
    position = tl.minimum(query + (T - given.queries), T - 1)
    of_query = tl.load(given.decay + row + position)
    key = tl.maximum(tl.minimum(key, T - 1), 0)
    if DIAGONAL:
        decay = (of_query - tl.load(given.decay + row + key)).to(tl.float32)
    else:
        newest = tl.minimum(tile * const.N + const.N - 1, T - 1)
        decay = (of_query - tl.load(given.decay + row + newest)).to(tl.float32)
        decay += tl.load(given.decay_in_tile + row + key)
    return content + decay, content, content, content
