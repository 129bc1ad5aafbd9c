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
    COUNTS: tl.constexpr,
    APPROXIMATE: tl.constexpr,
    PRECISION: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
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

    rows = query_tile * M + tl.arange(0, M)
    inside = rows < S
    positions = rows + (T - S - given.lag)
    first_position = query_tile * M + (T - S)
    first = tiles.first_seen(given, batch, rows)
    newest = tl.minimum(first_position + M - 1, T - 1) // N
    oldest = tiles.oldest_needed(given, batch, head, rows, first) // N
    band_end = tl.maximum(first_position + 1 - given.beyond, 0) // N

    if given.gate_query is not None:
        query = tiles.load_rows(given.gate_query, batch, head, rows, S, D, BLOCK_D, True)
    else:
        query = tiles.load_rows(given.query, batch, head, rows, S, D, BLOCK_D, True)
    carry = tl.zeros((M,), tl.int64 if COUNTS else tl.float32)
    at = carry_at_tile + (batch * given.heads + head).to(tl.int64) * tl.cdiv(T, N) * S + rows
    # From the end of the newest group on, whose keys may all be in the future, and whole groups
    tile = newest // (GROUP // N) * (GROUP // N) + GROUP // N - 1
    going = newest >= oldest
    while going:
        for _ in tl.range(0, GROUP // N):
            keys = tile * N + tl.arange(0, N)
            seen = (keys[None, :] <= positions[:, None]) & (keys[None, :] >= first[:, None])
            met = tl.zeros_like(rows) + tile
            there = inside & (met < tl.cdiv(T, N))
            tl.store(at + tile.to(tl.int64) * S, carry, mask=there)
            if given.gate_key is not None:
                key = tiles.load_columns(given.gate_key, batch, key_head, keys, T, D, BLOCK_D, True)
            else:
                key = tiles.load_columns(given.key, batch, key_head, keys, T, D, BLOCK_D, True)
            content = arithmetic.dot(query, key, tl.zeros((M, N), tl.float32), PRECISION)
            if COUNTS:
                gates = arithmetic.make_gates(content * given.gate_scale, APPROXIMATE)
                carry += arithmetic.quanta(tl.where(seen, gates, 0.0), 1)
            else:
                spent, _ = stick_breaking.breaks(content * given.scale, seen)
                carry += tl.sum(spent, 1)
            tile -= 1
        done = (carry >= given.settled) | (first > tile * N + N - 1)
        going = (tile >= oldest) & ((tl.min(done.to(tl.int32)) == 0) | (tile >= band_end))
    row = (batch * given.heads + head).to(tl.int64) * S + rows
    tl.store(band + row, tl.zeros_like(rows) + (tile + 1) * N, mask=inside)
