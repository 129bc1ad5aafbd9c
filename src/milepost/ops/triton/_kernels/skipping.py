"""Which keys forgetting leaves out: found before the scan, so that its loops know their ends."""

import triton
import triton.language as tl

from milepost.ops.triton._kernels import tiles


@triton.jit
def needed(
    query,
    key,
    decay,
    longest,
    lowest,
    found,
    scale,
    most,
    group,
    S,
    T,
    D: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
):
    """For each row the oldest key that it needs, a multiple of N.

    It does not need the tile whose newest key is n, nor any older one, if

        since = Λ_i − min_{j ≤ n} Λ_j  <  −24   and
        |scale| · ‖q_i‖ · max_{j ≤ n} ‖k_j‖ + since + log₂ T  <  s_ii − 24

    (all in base 2): by Cauchy and Schwarz, the weights of at most T such keys are together below
    2⁻²⁴ of the weight of the row's own token. Both grow with n, which bisection makes use of.

    longest (B, G, tiles) and lowest (B, H, tiles) are those maxima and minima, and most is log₂ T.
    grid: row tiles, H, B.
    """
    head = tl.program_id(1)
    batch = tl.program_id(2)
    heads = tl.num_programs(1)
    rows = tl.program_id(0) * M + tl.arange(0, M)
    inside = rows < S
    own = tl.minimum(rows + (T - S), T - 1)
    q = tiles.load_rows(query, batch, head, rows, S, D, True).tile.to(tl.float32)
    k = tiles.load_rows(key, batch, head // group, own, T, D, True).tile.to(tl.float32)
    own_logit = tl.sum(q * k, 1) * scale
    length = tl.sqrt(tl.sum(q * q, 1)) * tl.abs(scale)
    of_head = (batch * heads + head).to(tl.int64)
    own_decay = tl.load(decay + of_head * T + own)
    count = tl.cdiv(T, N)
    keys_of = longest + (batch * (heads // group) + head // group).to(tl.int64) * count
    decays_of = lowest + of_head * count

    # the tiles below `low` are not needed, `high` and all above are
    low = tl.zeros_like(rows)
    high = own // N
    steps = 32
    while steps > 0:
        middle = (low + high) // 2
        since = (own_decay - tl.load(decays_of + middle)).to(tl.float32)
        # what rounding may have taken from the bound
        bound = length * tl.load(keys_of + middle) * 1.0001 + since + most
        without = (since < -24) & (bound < own_logit - 24 - 1e-4 * tl.abs(own_logit))
        searching = low < high
        low = tl.where(searching & without, middle + 1, low)
        high = tl.where(searching & (without == 0), middle, high)
        steps -= 1
    tl.store(found + of_head * S + rows, low * N, mask=inside)
