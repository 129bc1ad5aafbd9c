"""The gradients that belong to keys: a tile of them meets all queries that see it."""

import triton
import triton.language as tl

from milepost.ops.triton._kernels import arithmetic, pairs, tiles


@triton.jit
def backward_key(
    given,
    back,
    grads,
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
    PART: tl.constexpr,
    BAND_N: tl.constexpr,
):
    """Writes the gradients of keys, values, gate keys and columns.

    The tile of keys belongs to one program, which adds up over all queries and query heads: nothing
    is added by two at once. Tiles lie with keys in rows here, queries in columns.

    grid: key tiles, G, B. PART is "all", or "rest" and then "band". BAND_N is the tile of keys of
    `carries` and `backward_query` in the band; N of the band is a multiple of it.
    """
    T = given.keys
    tile = tl.program_id(0)
    key_head = tl.program_id(1)
    batch = tl.program_id(2)
    keys = tile * N + tl.arange(0, N)

    key = tiles.load_rows(given.key, batch, key_head, keys, T, D, BLOCK_D, True)
    value = tiles.load_rows(given.value, batch, key_head, keys, T, V, BLOCK_V, True)
    gate_key = key
    if given.gate_key is not None:
        gate_key = tiles.load_rows(given.gate_key, batch, key_head, keys, T, D, BLOCK_D, True)
    key_row = (batch * (given.heads // given.group) + key_head).to(tl.int64) * T + keys
    across = tl.arange(0, BLOCK_D)[None, :]
    at = key_row[:, None] * D + across
    within = (keys < T)[:, None] & (across < D)
    across = tl.arange(0, BLOCK_V)[None, :]
    value_at = key_row[:, None] * V + across
    value_within = (keys < T)[:, None] & (across < V)
    grad = tl.zeros((N, BLOCK_D), tl.float32)
    value_grad = tl.zeros((N, BLOCK_V), tl.float32)
    if PART == "band" and back.rest is not None:
        grad = tl.load(back.rest.key + at, mask=within, other=0.0)
        value_grad = tl.load(back.rest.value + value_at, mask=value_within, other=0.0)
    gate_grad = tl.zeros((N, BLOCK_D), tl.float32)  # of gate keys of their own

    for member in tl.range(0, given.group):
        head = key_head * given.group + member
        first, band, last = query_tiles(given, back, batch, head, tile, M, N)
        column = tl.zeros((N,), tl.float32)
        if PART != "band":
            query_tile = band + 1
            for _ in tl.range(0, last - band):
                grad, gate_grad, value_grad, column = meet(
                    given, back, grads, key, value, gate_key, batch, head, keys, tile, query_tile,
                    grad, gate_grad, value_grad, column, LOGITS, SHIFT, COUNTS, STICK, APPROXIMATE,
                    PRECISION, D, V, BLOCK_D, BLOCK_V, M, N, BAND_N, BAND=False,
                    MASKED=given.start is not None,
                )  # fmt: skip
                query_tile += 1
        if PART != "rest":
            query_tile = first
            for _ in tl.range(0, band + 1 - first):
                grad, gate_grad, value_grad, column = meet(
                    given, back, grads, key, value, gate_key, batch, head, keys, tile, query_tile,
                    grad, gate_grad, value_grad, column, LOGITS, SHIFT, COUNTS, STICK, APPROXIMATE,
                    PRECISION, D, V, BLOCK_D, BLOCK_V, M, N, BAND_N, BAND=True, MASKED=True,
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
        if not COUNTS:
            grad *= given.scale * arithmetic.LN_2
        tl.store(grads.key + at, grad.to(grads.key.dtype.element_ty), mask=within)
        value_grad = value_grad.to(grads.value.dtype.element_ty)
        tl.store(grads.value + value_at, value_grad, mask=value_within)
        if COUNTS and given.gate_key is not None:
            gate_grad = gate_grad.to(grads.gate_key.dtype.element_ty)
            tl.store(grads.gate_key + at, gate_grad, mask=within)


@triton.jit
def query_tiles(given, back, batch, head, tile, M: tl.constexpr, N: tl.constexpr):
    """The query tiles of this tile of keys: the first, the last in its band, and the last.

    The band is that of the group of keys, so that the kernels of the band and of the rest agree on
    it, whatever their tiles are.
    """
    S = given.queries
    T = given.keys
    ahead = T - S - given.lag  # a row stands at so many keys more
    first = tl.maximum(tile * N - ahead, 0) // M
    group = tile * N // back.keys
    at = (batch * given.heads + head).to(tl.int64) * tl.cdiv(T, back.keys) + group
    # the last row with keys of the group in its future, or within the table of distances
    band = (group + 1) * back.keys - 2 + given.beyond - ahead
    if back.band_reach is not None:
        band = tl.maximum(band, tl.load(back.band_reach + at))
    band = (tl.maximum(band, -1) + back.rows) // back.rows * (back.rows // M) - 1
    last = S - 1
    if back.reach is not None:
        last = tl.load(back.reach + at)
    last = (last + M) // M - 1
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
    BAND_N: tl.constexpr,
    BAND: tl.constexpr,
    MASKED: tl.constexpr,
):
    """One tile of queries: what it adds to the gradients of the keys."""
    S = given.queries
    T = given.keys
    DTYPE: tl.constexpr = key.dtype
    rows = query_tile * M + tl.arange(0, M)
    inside = rows < S
    row = (batch * given.heads + head).to(tl.int64) * S + rows
    query = tiles.load_columns(given.query, batch, head, rows, S, D, BLOCK_D, True)
    grad_out = tiles.load_columns(back.grad_out, batch, head, rows, S, V, BLOCK_V, True)
    zero = tl.zeros((N, M), tl.float32)
    content = arithmetic.dot(key, query, zero, PRECISION)
    d_weights = arithmetic.dot(value, grad_out, zero, PRECISION)
    seen = None
    if MASKED:
        positions = rows + (T - S - given.lag)
        first = tiles.first_seen(given, batch, rows)
        seen = (keys[:, None] <= positions[None, :]) & (keys[:, None] >= first[None, :])
    gate_query = query
    gate_content = content
    if COUNTS and BAND and given.gate_key is not None:
        if given.gate_query is not None:
            gate_query = tiles.load_columns(
                given.gate_query, batch, head, rows, S, D, BLOCK_D, True
            )
        gate_content = arithmetic.dot(gate_key, gate_query, zero, PRECISION)
    older = tl.zeros((M,), tl.float32)
    carry = older
    if (COUNTS or STICK) and BAND:
        of_head = (batch * given.heads + head).to(tl.int64) * tl.cdiv(T, BAND_N)
        newest = of_head + (tl.minimum((tile + 1) * N, T) - 1) // BAND_N
        # Rows that do not come as far have counted all of the table, or used up the stick
        counting = inside & (tl.load(back.band + row, mask=inside, other=0) <= tile * N)
        nothing_left = 1e30 if STICK else given.full
        carry = tl.load(back.carry + newest * S + rows, mask=counting, other=nothing_left)
        oldest = of_head + tile * (N // BAND_N)
        older = tl.load(back.older + oldest * S + rows, mask=counting, other=0.0)

    if STICK:
        weights, _, d_logit = pairs.stick_pair(
            content, d_weights, seen, carry[None, :], older[None, :], given, DTYPE, PRECISION, N, 0
        )
        d_content = d_logit
    else:
        everything = tl.num_programs(2).to(tl.int64) * given.heads * S
        top = tl.load(back.residual + row, mask=inside, other=float("inf"))
        if not BAND:
            top -= SHIFT(given, batch, head, rows)
        inverse = tl.load(back.residual + everything + row, mask=inside, other=0.0)
        delta = tl.load(back.delta + row, mask=inside, other=0.0)
        weights, d_logit, _, d_gate, _, _, _ = pairs.softmax_pair(
            content, gate_content, d_weights, seen, top[None, :], inverse[None, :], delta[None, :],
            carry[None, :], older[None, :], given, batch, head, rows[None, :], keys[:, None], tile,
            LOGITS, COUNTS, APPROXIMATE, DTYPE, PRECISION, N, 0, BAND, MASKED,
        )  # fmt: skip
        d_content = d_logit
        if COUNTS and BAND:  # else the scale is left to the end
            d_content *= given.scale * arithmetic.LN_2
        if grads.column is not None:
            column += tl.sum(d_logit, 1)
        if COUNTS and BAND:
            if given.gate_key is None:
                d_content += d_gate
            else:
                gate_grad = arithmetic.dot(
                    d_gate.to(DTYPE), tl.trans(gate_query), gate_grad, PRECISION
                )
    value_grad = arithmetic.dot(weights.to(DTYPE), tl.trans(grad_out), value_grad, PRECISION)
    grad = arithmetic.dot(d_content.to(DTYPE), tl.trans(query), grad, PRECISION)
    return grad, gate_grad, value_grad, column
