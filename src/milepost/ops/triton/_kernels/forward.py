"""The forward: a tile of queries meets its tiles of keys, from the newest to the oldest.

First the band: the tiles on the diagonal, those within a table of distances, and, where the op
counts or breaks a stick, those that still may. Then the rest, where nothing is carried.
"""

import triton
import triton.language as tl

from milepost.ops.triton._kernels import arithmetic, tiles
from milepost.ops.triton._kernels.policies import stick_breaking


@triton.jit
def forward(
    given,
    out,
    residual,
    LOGITS: tl.constexpr,
    SHIFT: tl.constexpr,
    COUNTS: tl.constexpr,
    STICK: tl.constexpr,
    APPROXIMATE: tl.constexpr,
    PRECISION: tl.constexpr,
    D: tl.constexpr,
    V: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Writes out (B, H, S, V) and residual.

    The latter is (2, B, H, S), a logit of each row and 1 / its sum; or (B, H, S), what is left of
    the stick. grid: query tiles, H, B. CHUNK is how many tiles of a band are met before anyone
    looks whether its end is reached; the loads of these overlap.
    """
    S = given.queries
    T = given.keys
    # The rows with the most keys begin
    query_tile = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1)
    batch = tl.program_id(2)
    key_head = head // given.group

    rows = query_tile * M + tl.arange(0, M)
    positions = rows + (T - S - given.lag)
    first_position = query_tile * M + (T - S)
    first = tiles.first_seen(given, batch, rows)
    newest = tl.minimum(first_position + M - 1, T - 1) // N
    oldest = tiles.oldest_needed(given, batch, head, rows, first) // N
    band_end = tl.maximum(first_position + 1 - given.beyond, 0) // N

    query = tiles.load_rows(given.query, batch, head, rows, S, D, BLOCK_D, True)
    gate_query = query
    if given.gate_query is not None:
        gate_query = tiles.load_rows(given.gate_query, batch, head, rows, S, D, BLOCK_D, True)
    top = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    carry = tl.zeros((M,), tl.float32 if STICK else tl.int64)
    acc = tl.zeros((M, BLOCK_V), tl.float32)

    zero = tl.zeros((M,), tl.float32)
    tile = newest
    if COUNTS or STICK:
        going = tile >= oldest
        while going:
            for _ in tl.range(0, CHUNK):
                top, total, carry, acc = meet(
                    given, query, gate_query, batch, head, key_head, rows, positions, first, tile,
                    zero, top, total, carry, acc, LOGITS, COUNTS, STICK, APPROXIMATE, PRECISION,
                    D, V, BLOCK_D, BLOCK_V, N, BAND=True, MASKED=True,
                )  # fmt: skip
                tile -= 1
            done = (carry >= given.settled) | (first > tile * N + N - 1)
            going = (tile >= oldest) & ((tl.min(done.to(tl.int32)) == 0) | (tile >= band_end))
    else:
        for _ in tl.range(0, newest + 1 - tl.maximum(band_end, oldest)):
            top, total, carry, acc = meet(
                given, query, gate_query, batch, head, key_head, rows, positions, first, tile,
                zero, top, total, carry, acc, LOGITS, COUNTS, STICK, APPROXIMATE, PRECISION,
                D, V, BLOCK_D, BLOCK_V, N, BAND=True, MASKED=True,
            )  # fmt: skip
            tile -= 1
    if not STICK:
        common = SHIFT(given, batch, head, rows)
        for _ in tl.range(0, tile + 1 - oldest):
            top, total, carry, acc = meet(
                given, query, gate_query, batch, head, key_head, rows, positions, first, tile,
                common, top, total, carry, acc, LOGITS, COUNTS, STICK, APPROXIMATE, PRECISION,
                D, V, BLOCK_D, BLOCK_V, N, BAND=False,
                MASKED=given.start is not None,
            )  # fmt: skip
            tile -= 1

    inside = rows < S
    row = (batch * given.heads + head).to(tl.int64) * S + rows
    if STICK:
        tl.store(residual + row, tl.exp2(-carry), mask=inside)
    else:
        inverse = tl.where(total > 0, 1 / total, 0.0)
        acc *= inverse[:, None]
        everything = tl.num_programs(2).to(tl.int64) * given.heads * S
        tl.store(residual + row, tl.where(total > 0, top, 0.0), mask=inside)
        tl.store(residual + everything + row, inverse, mask=inside)
    across = tl.arange(0, BLOCK_V)
    at = out + row[:, None] * V + across[None, :]
    tl.store(at, acc.to(out.dtype.element_ty), mask=inside[:, None] & (across < V)[None, :])


@triton.jit
def meet(
    given,
    query,
    gate_query,
    batch,
    head,
    key_head,
    rows,
    positions,
    first,
    tile,
    common,
    top,
    total,
    carry,
    acc,
    LOGITS: tl.constexpr,
    COUNTS: tl.constexpr,
    STICK: tl.constexpr,
    APPROXIMATE: tl.constexpr,
    PRECISION: tl.constexpr,
    D: tl.constexpr,
    V: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr,
    N: tl.constexpr,
    BAND: tl.constexpr,
    MASKED: tl.constexpr,
):
    """One tile of keys: its weights, what they add, and what is carried on."""
    T = given.keys
    keys = tile * N + tl.arange(0, N)
    key = tiles.load_columns(given.key, batch, key_head, keys, T, D, BLOCK_D, MASKED)
    content = arithmetic.dot(query, key, tl.zeros((query.shape[0], N), tl.float32), PRECISION)
    seen = None
    if MASKED:
        seen = (keys[None, :] <= positions[:, None]) & (keys[None, :] >= first[:, None])
    gates = content
    if COUNTS and BAND:
        if given.gate_key is not None:
            gate_key = tiles.load_columns(
                given.gate_key, batch, key_head, keys, T, D, BLOCK_D, MASKED
            )
            zero = tl.zeros((query.shape[0], N), tl.float32)
            gates = arithmetic.dot(gate_query, gate_key, zero, PRECISION)
        gates = arithmetic.make_gates(gates * given.gate_scale, APPROXIMATE)
        gates = tl.where(seen, gates, 0.0)
    if BAND:
        content *= given.scale
    else:  # one operation, as it would be without what such keys have in common
        content = content * given.scale + common[:, None]
    if STICK:
        spent, log_beta = stick_breaking.breaks(content, seen)
        before = arithmetic.spent_before(spent, carry[:, None], N, 1)
        weights = tl.where(seen, tl.exp2(log_beta - before), 0.0)
        carry += tl.sum(spent, 1)
    else:
        logit, _, _, _ = LOGITS(
            content, gates, carry[:, None], given, batch, head, rows[:, None], keys[None, :], tile,
            N, 1, BAND, MASKED and BAND, APPROXIMATE,
        )  # fmt: skip
        if MASKED:
            logit = tl.where(seen, logit, float("-inf"))
        higher = tl.maximum(top, tl.max(logit, 1))
        # A row that has seen nothing yet has no logit to be relative to
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(logit - base[:, None])
        shrink = tl.exp2(top - base)
        total = total * shrink + tl.sum(weights, 1)
        acc *= shrink[:, None]
        top = higher
        if COUNTS and BAND:
            carry += arithmetic.quanta(gates, 1)
    value = tiles.load_rows(given.value, batch, key_head, keys, T, V, BLOCK_V, MASKED)
    acc = arithmetic.dot(weights.to(value.dtype), value, acc, PRECISION)
    return top, total, carry, acc
