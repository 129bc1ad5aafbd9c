"""The forward: a tile of queries meets its tiles of keys, from the newest to the oldest.

First the band: the tiles on the diagonal, those within a table of distances, and, where the op
counts or breaks a stick, those that still may. Then the rest, where nothing is carried.
"""

import triton
import triton.language as tl

from milepost.ops.triton._kernels import arithmetic, tiles
from milepost.ops.triton._kernels.policies import softmax, stick_breaking


@triton.jit
def forward(
    given,
    out,
    residual,
    policy,
    const: tl.constexpr,
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

    rows = query_tile * const.M + tl.arange(0, const.M)
    positions = rows + (T - S - given.lag)
    first_position = query_tile * const.M + (T - S)
    first = tiles.first_seen(given, batch, rows)
    newest = tl.minimum(first_position + const.M - 1, T - 1) // const.N
    oldest = tiles.oldest_needed(given, batch, head, rows, first) // const.N
    band_end = tl.maximum(first_position + 1 - given.beyond, 0) // const.N

    query = tiles.load_rows(given.query, batch, head, rows, S, const.D, True)
    gate_query = query
    if given.gate_query is not None:
        gate_query = tiles.load_rows(given.gate_query, batch, head, rows, S, const.D, True)
    top = tl.full((const.M,), float("-inf"), tl.float32)
    total = tl.zeros((const.M,), tl.float32)
    carry = tl.zeros((const.M,), tl.float32 if const.STICK else tl.int64)
    acc = tl.zeros((const.M, const.BLOCK_V), tl.float32)

    zero = tl.zeros((const.M,), tl.float32)
    tile = newest
    if const.COUNTS or const.STICK:
        going = tile >= oldest
        while going:
            for _ in tl.range(0, CHUNK):
                top, total, carry, acc = meet(
                    given, query, gate_query, batch, head, key_head, rows, positions, first, tile,
                    zero, top, total, carry, acc, policy, const, BAND=True, MASKED=True,
                )  # fmt: skip
                tile -= 1
            done = (carry >= given.settled) | (first > tile * const.N + const.N - 1)
            going = (tile >= oldest) & ((tl.min(done.to(tl.int32)) == 0) | (tile >= band_end))
    else:
        for _ in tl.range(0, newest + 1 - tl.maximum(band_end, oldest)):
            top, total, carry, acc = meet(
                given, query, gate_query, batch, head, key_head, rows, positions, first, tile,
                zero, top, total, carry, acc, policy, const, BAND=True, MASKED=True,
            )  # fmt: skip
            tile -= 1
    if not const.STICK:
        common = policy.shift(given, batch, head, rows)
        for _ in tl.range(0, tile + 1 - oldest):
            top, total, carry, acc = meet(
                given, query, gate_query, batch, head, key_head, rows, positions, first, tile,
                common, top, total, carry, acc, policy, const, BAND=False,
                MASKED=given.start is not None,
            )  # fmt: skip
            tile -= 1

    inside = rows < S
    row = (batch * given.heads + head).to(tl.int64) * S + rows
    if const.STICK:
        tl.store(residual + row, tl.exp2(-carry), mask=inside)
    else:
        inverse = tl.where(total > 0, 1 / total, 0.0)
        acc *= inverse[:, None]
        everything = tl.num_programs(2).to(tl.int64) * given.heads * S
        tl.store(residual + row, tl.where(total > 0, top, 0.0), mask=inside)
        tl.store(residual + everything + row, inverse, mask=inside)
    across = tl.arange(0, const.BLOCK_V)
    at = out + row[:, None] * const.V + across[None, :]
    tl.store(at, acc.to(out.dtype.element_ty), mask=inside[:, None] & (across < const.V)[None, :])


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
    policy,
    const: tl.constexpr,
    BAND: tl.constexpr,
    MASKED: tl.constexpr,
):
    """One tile of keys: its weights, what they add, and what is carried on."""
    T = given.keys
    keys = tile * const.N + tl.arange(0, const.N)
    key = tiles.load_rows(given.key, batch, key_head, keys, T, const.D, MASKED)
    content = tiles.products(query, key, const.D, const, 1)
    seen = None
    if MASKED:
        seen = (keys[None, :] <= positions[:, None]) & (keys[None, :] >= first[:, None])
    gates = content
    if const.COUNTS and BAND:
        if given.gate_key is not None:
            gate_key = tiles.load_rows(given.gate_key, batch, key_head, keys, T, const.D, MASKED)
            gates = tiles.products(gate_query, gate_key, const.D, const, 1)
        gates = arithmetic.make_gates(gates * given.gate_scale, const.APPROXIMATE)
        gates = tl.where(seen, gates, 0.0)
    if BAND:
        content *= given.scale
    else:  # one operation, as it would be without what such keys have in common
        content = content * given.scale + common[:, None]
    if const.STICK:
        weights, spent, _ = stick_breaking.weights(content, seen, carry[:, None], const.N, 1)
        carry += tl.sum(spent, 1)
    else:
        logit, _, _, _ = policy.logits(
            content, gates, carry[:, None], given, batch, head, rows[:, None], keys[None, :], tile,
            const, 1, BAND, MASKED and BAND,
        )  # fmt: skip
        if MASKED:
            logit = tl.where(seen, logit, float("-inf"))
        weights, top, total, acc = softmax.weights(logit, top, total, acc)
        if const.COUNTS and BAND:
            carry += arithmetic.quanta(gates, 1)
    value = tiles.load_rows(given.value, batch, key_head, keys, T, const.V, MASKED).tile
    acc = arithmetic.dot(weights.to(value.dtype), value, acc, const.PRECISION)
    return top, total, carry, acc
