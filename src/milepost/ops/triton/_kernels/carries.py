"""Before the backward: what rows carry when they come to a tile, and how far they count."""

import triton
import triton.language as tl

from milepost.ops.triton._kernels import arithmetic, tiles
from milepost.ops.triton._kernels.policies import stick_breaking


@triton.jit
def carries(
    given,
    carry_at_tile,
    band,
    const: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Writes `carry` and `band` of `Backward`. The scan of the forward, without its values.

    grid: query tiles, H, B. The band begins and ends at a multiple of GROUP keys.
    """
    S = given.queries
    T = given.keys
    query_tile = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1)
    batch = tl.program_id(2)
    key_head = head // given.group

    rows = query_tile * const.M + tl.arange(0, const.M)
    inside = rows < S
    positions = rows + (T - S - given.lag)
    first_position = query_tile * const.M + (T - S)
    first = tiles.first_seen(given, batch, rows)
    newest = tl.minimum(first_position + const.M - 1, T - 1) // const.N
    oldest = tiles.oldest_needed(given, batch, head, rows, first) // const.N
    band_end = tl.maximum(first_position + 1 - given.beyond, 0) // const.N

    if given.gate_query is not None:
        query = tiles.load_rows(given.gate_query, batch, head, rows, S, const.D, True)
    else:
        query = tiles.load_rows(given.query, batch, head, rows, S, const.D, True)
    carry = tl.zeros((const.M,), tl.int64 if const.COUNTS else tl.float32)
    at = carry_at_tile + (batch * given.heads + head).to(tl.int64) * tl.cdiv(T, const.N) * S + rows
    # From the end of the newest group on, whose keys may all be in the future, and whole groups
    tile = newest // (GROUP // const.N) * (GROUP // const.N) + GROUP // const.N - 1
    going = newest >= oldest
    while going:
        for _ in tl.range(0, GROUP // const.N):
            keys = tile * const.N + tl.arange(0, const.N)
            seen = (keys[None, :] <= positions[:, None]) & (keys[None, :] >= first[:, None])
            met = tl.zeros_like(rows) + tile
            there = inside & (met < tl.cdiv(T, const.N))
            tl.store(at + tile.to(tl.int64) * S, carry, mask=there)
            if given.gate_key is not None:
                key = tiles.load_rows(given.gate_key, batch, key_head, keys, T, const.D, True)
            else:
                key = tiles.load_rows(given.key, batch, key_head, keys, T, const.D, True)
            content = tiles.products(query, key, const.D, const, 1)
            if const.COUNTS:
                gates = arithmetic.make_gates(content * given.gate_scale, const.APPROXIMATE)
                carry += arithmetic.quanta(tl.where(seen, gates, 0.0), 1)
            else:
                spent, _ = stick_breaking.breaks(content * given.scale, seen)
                carry += tl.sum(spent, 1)
            tile -= 1
        done = (carry >= given.settled) | (first > tile * const.N + const.N - 1)
        going = (tile >= oldest) & ((tl.min(done.to(tl.int32)) == 0) | (tile >= band_end))
    row = (batch * given.heads + head).to(tl.int64) * S + rows
    tl.store(band + row, tl.zeros_like(rows) + (tile + 1) * const.N, mask=inside)
