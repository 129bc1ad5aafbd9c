"""The gradients that belong to keys: a tile of them meets all queries that see it."""

import triton
import triton.language as tl

from milepost.ops.triton._kernels import arithmetic, pairs, tiles


@triton.jit
def backward_key(
    given,
    back,
    grads,
    policy,
    const: tl.constexpr,
    PART: tl.constexpr,
    BAND_N: tl.constexpr,
):
    """Writes the gradients of keys, values, gate keys and columns.

    The tile of keys belongs to one program, which adds up over all queries and query heads: nothing
    is added by two at once. Keys are the rows of a tile here, so that weights are on the side of
    the products where they may stay in registers; but not in the band, where queries bring so many
    numbers of their own that each thread should have few of them.

    grid: key tiles, G, B. PART is "all", or "rest" and then "band". BAND_N is the tile of keys of
    `carries` and `backward_query` in the band; N of the band is a multiple of it.
    """
    T = given.keys
    tile = tl.program_id(0)
    key_head = tl.program_id(1)
    batch = tl.program_id(2)
    keys = tile * const.N + tl.arange(0, const.N)

    key = tiles.load_rows(given.key, batch, key_head, keys, T, const.D, True)
    value = tiles.load_rows(given.value, batch, key_head, keys, T, const.V, True)
    gate_key = key
    if given.gate_key is not None:
        gate_key = tiles.load_rows(given.gate_key, batch, key_head, keys, T, const.D, True)
    key_row = (batch * (given.heads // given.group) + key_head).to(tl.int64) * T + keys
    across = tl.arange(0, const.BLOCK_D)[None, :]
    at = key_row[:, None] * const.D + across
    within = (keys < T)[:, None] & (across < const.D)
    across = tl.arange(0, const.BLOCK_V)[None, :]
    value_at = key_row[:, None] * const.V + across
    value_within = (keys < T)[:, None] & (across < const.V)
    grad = tl.zeros((const.N, const.BLOCK_D), tl.float32)
    value_grad = tl.zeros((const.N, const.BLOCK_V), tl.float32)
    if PART == "band" and back.rest is not None:
        grad = tl.load(back.rest.key + at, mask=within, other=0.0)
        value_grad = tl.load(back.rest.value + value_at, mask=value_within, other=0.0)
    gate_grad = tl.zeros((const.N, const.BLOCK_D), tl.float32)  # of gate keys of their own

    KEYS: tl.constexpr = 1 if PART == "band" else 0
    for member in tl.range(0, given.group):
        head = key_head * given.group + member
        first, band, last = query_tiles(given, back, batch, head, tile, const)
        column = tl.zeros((const.N,), tl.float32)
        if PART != "band":
            query_tile = band + 1
            for _ in tl.range(0, last - band):
                grad, gate_grad, value_grad, column = meet(
                    given, back, grads, key, value, gate_key, batch, head, keys, tile, query_tile,
                    grad, gate_grad, value_grad, column, policy, const, BAND_N, KEYS, BAND=False,
                    MASKED=given.start is not None,
                )  # fmt: skip
                query_tile += 1
        if PART != "rest":
            query_tile = first
            for _ in tl.range(0, band + 1 - first):
                grad, gate_grad, value_grad, column = meet(
                    given, back, grads, key, value, gate_key, batch, head, keys, tile, query_tile,
                    grad, gate_grad, value_grad, column, policy, const, BAND_N, KEYS, BAND=True,
                    MASKED=True,
                )  # fmt: skip
                query_tile += 1
        if grads.column is not None:
            at_column = grads.column + (batch * given.heads + head).to(tl.int64) * T + keys
            tl.store(at_column, column, mask=keys < T)

    if PART == "rest":
        grad *= given.scale * arithmetic.LN_2
        tl.store(back.rest.key + at, grad, mask=within)
        tl.store(back.rest.value + value_at, value_grad, mask=value_within)
    else:
        if not const.COUNTS:
            grad *= given.scale * arithmetic.LN_2
        tl.store(grads.key + at, grad.to(grads.key.dtype.element_ty), mask=within)
        value_grad = value_grad.to(grads.value.dtype.element_ty)
        tl.store(grads.value + value_at, value_grad, mask=value_within)
        if const.COUNTS and given.gate_key is not None:
            gate_grad = gate_grad.to(grads.gate_key.dtype.element_ty)
            tl.store(grads.gate_key + at, gate_grad, mask=within)


@triton.jit
def query_tiles(given, back, batch, head, tile, const):
    """The query tiles of this tile of keys: the first, the last in its band, and the last.

    The band is that of the group of keys, so that the kernels of the band and of the rest agree on
    it, whatever their tiles are.
    """
    S = given.queries
    T = given.keys
    ahead = T - S - given.lag  # a row stands at so many keys more
    first = tl.maximum(tile * const.N - ahead, 0) // const.M
    group = tile * const.N // back.keys
    at = (batch * given.heads + head).to(tl.int64) * tl.cdiv(T, back.keys) + group
    # the last row with keys of the group in its future, or within the table of distances
    band = (group + 1) * back.keys - 2 + given.beyond - ahead
    if back.band_reach is not None:
        band = tl.maximum(band, tl.load(back.band_reach + at))
    band = (tl.maximum(band, -1) + back.rows) // back.rows * (back.rows // const.M) - 1
    last = S - 1
    if back.reach is not None:
        last = tl.load(back.reach + at)
    last = (last + const.M) // const.M - 1
    return first, tl.minimum(band, last), last


@triton.jit
def meet(
    given,
    back,
    grads,
    key,
    value,
    gate_key,
    batch,
    head,
    keys,
    tile,
    query_tile,
    grad,
    gate_grad,
    value_grad,
    column,
    policy,
    const: tl.constexpr,
    BAND_N: tl.constexpr,
    KEYS: tl.constexpr,
    BAND: tl.constexpr,
    MASKED: tl.constexpr,
):
    """One tile of queries: what it adds to the gradients of the keys."""
    S = given.queries
    T = given.keys
    DTYPE: tl.constexpr = key.tile.dtype
    rows = query_tile * const.M + tl.arange(0, const.M)
    inside = rows < S
    row = (batch * given.heads + head).to(tl.int64) * S + rows
    query = tiles.load_rows(given.query, batch, head, rows, S, const.D, True)
    grad_out = tiles.load_rows(back.grad_out, batch, head, rows, S, const.V, True)
    content = tiles.products(query, key, const.D, const, KEYS)
    d_weights = tiles.products(grad_out, value, const.V, const, KEYS)
    key_of = arithmetic.expand(keys, KEYS, True)
    seen = None
    if MASKED:
        positions = arithmetic.expand(rows + (T - S - given.lag), KEYS, False)
        first = arithmetic.expand(tiles.first_seen(given, batch, rows), KEYS, False)
        seen = (key_of <= positions) & (key_of >= first)
    gate_query = query
    gate_content = content
    if const.COUNTS and BAND and given.gate_key is not None:
        if given.gate_query is not None:
            gate_query = tiles.load_rows(given.gate_query, batch, head, rows, S, const.D, True)
        gate_content = tiles.products(gate_query, gate_key, const.D, const, KEYS)
    older = tl.zeros((const.M,), tl.float32)
    carry = older
    if (const.COUNTS or const.STICK) and BAND:
        of_head = (batch * given.heads + head).to(tl.int64) * tl.cdiv(T, BAND_N)
        newest = of_head + (tl.minimum((tile + 1) * const.N, T) - 1) // BAND_N
        # Rows that do not come as far have counted all of the table, or used up the stick
        # and rows before these keys have come to no tile as new as this
        counting = inside & (tl.load(back.band + row, mask=inside, other=0) <= tile * const.N)
        counting &= rows + (T - S - given.lag) >= tile * const.N
        nothing_left = 1e30 if const.STICK else given.full
        carry = tl.load(back.carry + newest * S + rows, mask=counting, other=nothing_left)
        oldest = of_head + tile * (const.N // BAND_N)
        older = tl.load(back.older + oldest * S + rows, mask=counting, other=0.0)

    carry = arithmetic.expand(carry, KEYS, False)
    older = arithmetic.expand(older, KEYS, False)

    if const.STICK:
        weights, _, d_content = pairs.stick_pair(
            content, d_weights, seen, carry, older, given, const, DTYPE, KEYS
        )
    else:
        everything = tl.num_programs(2).to(tl.int64) * given.heads * S
        top = tl.load(back.residual + row, mask=inside, other=float("inf"))
        if not BAND:
            top -= policy.shift(given, batch, head, rows)
        inverse = tl.load(back.residual + everything + row, mask=inside, other=0.0)
        delta = tl.load(back.delta + row, mask=inside, other=0.0)
        weights, d_content, _, d_gate, _, _, _ = pairs.softmax_pair(
            content, gate_content, d_weights, seen, arithmetic.expand(top, KEYS, False),
            arithmetic.expand(inverse, KEYS, False), arithmetic.expand(delta, KEYS, False), carry,
            older, given, batch, head, arithmetic.expand(rows, KEYS, False), key_of, tile,
            policy, const, DTYPE, KEYS, BAND, MASKED,
        )  # fmt: skip
        if grads.column is not None:
            column += tl.sum(d_content, 1 - KEYS)
        if const.COUNTS and BAND:
            d_content *= given.scale * arithmetic.LN_2  # else it is left to the end
            if given.gate_key is None:
                d_content += d_gate
            else:
                gate_grad = over_queries(
                    d_gate.to(DTYPE), gate_query.tile, gate_grad, const.PRECISION, KEYS
                )
    value_grad = over_queries(weights.to(DTYPE), grad_out.tile, value_grad, const.PRECISION, KEYS)
    grad = over_queries(d_content.to(DTYPE), query.tile, grad, const.PRECISION, KEYS)
    return grad, gate_grad, value_grad, column


@triton.jit
def over_queries(tile, of_queries, acc, PRECISION: tl.constexpr, KEYS: tl.constexpr):
    """acc + for each key, the sum over queries of the tile times what is theirs."""
    if KEYS == 1:
        return arithmetic.dot(tl.trans(tile), of_queries, acc, PRECISION)
    else:
        return arithmetic.dot(tile, of_queries, acc, PRECISION)
