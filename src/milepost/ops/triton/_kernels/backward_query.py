"""The gradients that belong to queries: a tile of them meets its keys, from the oldest on."""

import triton
import triton.language as tl

from milepost.ops.triton._kernels import arithmetic, pairs, tiles
from milepost.ops.triton._kernels.policies import distance


@triton.jit
def backward_query(
    given,
    back,
    grads,
    policy,
    const: tl.constexpr,
    PART: tl.constexpr,
):
    """Writes the gradients of queries, tables and rows, and `delta` and `older` for those of keys.

    grid: query tiles, H, B. PART is "all", or "rest" and then "band".
    """
    S = given.queries
    T = given.keys
    query_tile = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1)
    batch = tl.program_id(2)
    key_head = head // given.group

    rows = query_tile * const.M + tl.arange(0, const.M)
    inside = rows < S
    row = (batch * given.heads + head).to(tl.int64) * S + rows
    positions = rows + (T - S - given.lag)
    first_position = query_tile * const.M + (T - S)
    first = tiles.first_seen(given, batch, rows)
    newest = tl.minimum(first_position + const.M - 1, T - 1) // const.N
    oldest = tiles.oldest_needed(given, batch, head, rows, first) // const.N
    band = tl.maximum(first_position + 1 - given.beyond, 0) // const.N
    counts_from = 0
    if back.band is not None:
        of_head = (batch * given.heads + head).to(tl.int64)
        at = of_head * tl.cdiv(S, back.tile)
        band = tl.load(back.band_begin + at + query_tile * const.M // back.tile) // const.N
        counts_from = tl.load(back.band + of_head * S + query_tile * const.M)
    else:
        band = tl.maximum(band, oldest)

    query = tiles.load_rows(given.query, batch, head, rows, S, const.D, True)
    gate_query = query
    if given.gate_query is not None:
        gate_query = tiles.load_rows(given.gate_query, batch, head, rows, S, const.D, True)
    grad_out = tiles.load_rows(back.grad_out, batch, head, rows, S, const.V, True)
    older = tl.zeros((const.M,), tl.float32)
    top = older
    inverse = older
    delta = older
    if const.STICK:
        if back.grad_residual is not None:
            older = tl.load(back.residual + row, mask=inside, other=0.0)
            older *= tl.load(back.grad_residual + row, mask=inside, other=0.0)
    else:
        everything = tl.num_programs(2).to(tl.int64) * given.heads * S
        top = tl.load(back.residual + row, mask=inside, other=float("inf"))
        inverse = tl.load(back.residual + everything + row, mask=inside, other=0.0)
        if PART == "band":
            delta = tl.load(back.delta + row, mask=inside, other=0.0)
        else:
            across = tl.arange(0, const.BLOCK_V)[None, :]
            at = back.out + row[:, None] * const.V + across
            out = tl.load(at, mask=inside[:, None] & (across < const.V), other=0.0)
            delta = tl.sum(out.to(tl.float32) * grad_out.tile.to(tl.float32), 1)
            tl.store(back.delta + row, delta, mask=inside)
    across = tl.arange(0, const.BLOCK_D)[None, :]
    at = row[:, None] * const.D + across
    within = inside[:, None] & (across < const.D)
    grad = tl.zeros((const.M, const.BLOCK_D), tl.float32)
    taken = tl.zeros((const.M,), tl.float32)
    if PART == "band" and back.rest is not None:
        grad = tl.load(back.rest.query + at, mask=within, other=0.0)
        taken = tl.load(back.rest.taken + row, mask=inside, other=0.0)
    gate_grad = tl.zeros((const.M, const.BLOCK_D), tl.float32)  # by way of gate keys of their own

    tile = oldest
    taken_part = tl.zeros((const.M,), tl.float32)
    taken_beyond = taken_part
    if PART != "band":
        # Beyond the band the scale and the shift are left out of each pair
        common = policy.shift(given, batch, head, rows)
        for _ in tl.range(0, band - oldest):
            grad, gate_grad, older, taken, taken_part, taken_beyond = meet(
                given, back, grads, query, gate_query, grad_out, batch, head, key_head, rows, row,
                positions, first, tile, counts_from, top - common, inverse, delta, older, grad,
                gate_grad, taken, taken_part, taken_beyond, policy, const, BAND=False,
                MASKED=given.start is not None,
            )  # fmt: skip
            tile += 1
        grad *= given.scale * arithmetic.LN_2
    if PART == "rest":
        tl.store(back.rest.query + at, grad, mask=within)
        tl.store(back.rest.taken + row, taken, mask=inside)
    else:
        tile = band
        taken_beyond = taken
        for _ in tl.range(0, newest + 1 - band):
            grad, gate_grad, older, taken, taken_part, taken_beyond = meet(
                given, back, grads, query, gate_query, grad_out, batch, head, key_head, rows, row,
                positions, first, tile, counts_from, top, inverse, delta, older, grad, gate_grad,
                taken, taken_part, taken_beyond, policy, const, BAND=True, MASKED=True,
            )  # fmt: skip
            tile += 1
        if const.COUNTS and given.gate_key is not None and given.gate_query is None:
            grad += gate_grad
        tl.store(grads.query + at, grad.to(grads.query.dtype.element_ty), mask=within)
        if const.COUNTS and given.gate_query is not None:
            gate_grad = gate_grad.to(grads.gate_query.dtype.element_ty)
            tl.store(grads.gate_query + at, gate_grad, mask=within)
        if grads.lookup is not None:
            at_0 = grads.lookup + row * (2 * (given.last + 1))
            tl.store(at_0, taken, mask=inside)
            tl.store(at_0 + 1, taken_part, mask=inside)
        if grads.distance is not None:
            at_last = grads.distance + row * (given.beyond + 1) + given.beyond
            tl.store(at_last, taken_beyond, mask=inside)
        if grads.row is not None:
            tl.store(grads.row + row, taken, mask=inside)


@triton.jit
def meet(
    given,
    back,
    grads,
    query,
    gate_query,
    grad_out,
    batch,
    head,
    key_head,
    rows,
    row,
    positions,
    first,
    tile,
    counts_from,
    top,
    inverse,
    delta,
    older,
    grad,
    gate_grad,
    taken,
    taken_part,
    taken_beyond,
    policy,
    const: tl.constexpr,
    BAND: tl.constexpr,
    MASKED: tl.constexpr,
):
    """One tile of keys: what it adds to the gradients of the rows."""
    S = given.queries
    T = given.keys
    DTYPE: tl.constexpr = query.tile.dtype
    inside = rows < S
    keys = tile * const.N + tl.arange(0, const.N)
    key = tiles.load_rows(given.key, batch, key_head, keys, T, const.D, MASKED)
    value = tiles.load_rows(given.value, batch, key_head, keys, T, const.V, MASKED)
    content = tiles.products(query, key, const.D, const, 1)
    d_weights = tiles.products(grad_out, value, const.V, const, 1)
    seen = None
    if MASKED:
        seen = (keys[None, :] <= positions[:, None]) & (keys[None, :] >= first[:, None])
    gate_content = content
    gate_key = key
    if const.COUNTS and BAND and given.gate_key is not None:
        gate_key = tiles.load_rows(given.gate_key, batch, key_head, keys, T, const.D, MASKED)
        gate_content = tiles.products(gate_query, gate_key, const.D, const, 1)
    carry = older
    if (const.COUNTS or const.STICK) and BAND:
        at = (batch * given.heads + head).to(tl.int64) * tl.cdiv(T, const.N) + tile
        # Other rows of a tile of the rest may count further back: these have counted all there is
        counting = inside & (tl.zeros_like(rows) + tile * const.N >= counts_from)
        nothing_left = 1e30 if const.STICK else given.full
        carry = tl.load(back.carry + at * S + rows, mask=counting, other=nothing_left)
        tl.store(back.older + at * S + rows, older, mask=inside)

    if const.STICK:
        _, u, d_logit = pairs.stick_pair(
            content, d_weights, seen, carry[:, None], older[:, None], given, const, DTYPE, 1
        )
        older += tl.sum(u, 1)
        d_content = d_logit * (given.scale * arithmetic.LN_2)
    else:
        _, d_logit, d_count, d_gate, gates, whole, part = pairs.softmax_pair(
            content, gate_content, d_weights, seen, top[:, None], inverse[:, None], delta[:, None],
            carry[:, None], older[:, None], given, batch, head, rows[:, None], keys[None, :], tile,
            policy, const, DTYPE, 1, BAND, MASKED,
        )  # fmt: skip
        d_content = d_logit
        if BAND:
            d_content *= given.scale * arithmetic.LN_2
        if grads.lookup is not None and BAND:
            # Going on to newer keys, a row comes to each whole count from above, and leaves it
            # once: there it writes how much lies at that count and past it
            sums = arithmetic.sum_from_oldest(
                d_logit, taken[:, None], const.N, 1, DTYPE, const.PRECISION
            )
            d_part = d_logit * part
            part_sums = arithmetic.sum_from_oldest(
                d_part, taken_part[:, None], const.N, 1, DTYPE, const.PRECISION
            )
            leaves = seen & (part < gates) & (whole <= given.last)
            at = grads.lookup + row[:, None] * (2 * (given.last + 1)) + 2 * whole
            arithmetic.store_pair(at, sums, part_sums, leaves)
            taken += tl.sum(d_logit.to(DTYPE).to(tl.float32), 1)
            taken_part += tl.sum(d_part.to(DTYPE).to(tl.float32), 1)
        elif given.slopes is not None and BAND:
            taken += tl.sum(d_logit * (whole.to(tl.float32) + part), 1)
        elif grads.lookup is not None or grads.row is not None or grads.distance is not None:
            taken += tl.sum(d_logit, 1)
        if grads.distance is not None and BAND:
            apart = distance.between(given, rows[:, None], keys[None, :])
            at = grads.distance + row[:, None] * (given.beyond + 1) + apart
            within = seen & inside[:, None] & (apart < given.beyond)
            arithmetic.store_number(at, d_logit, within)
            taken_beyond += tl.sum(tl.where(apart < given.beyond, 0.0, d_logit), 1)
        if grads.bias is not None:
            at = grads.bias + row[:, None] * T + keys[None, :]
            there = inside[:, None] & (keys >= 0)[None, :] & (keys < T)[None, :]
            tl.store(at, d_logit, mask=there & seen if MASKED else there)
        if const.COUNTS and BAND:
            older += tl.sum(d_count, 1)
            if given.gate_key is None:
                d_content += d_gate
            else:
                gate_grad = arithmetic.dot(
                    d_gate.to(DTYPE), gate_key.tile, gate_grad, const.PRECISION
                )
    grad = arithmetic.dot(d_content.to(DTYPE), key.tile, grad, const.PRECISION)
    return grad, gate_grad, older, taken, taken_part, taken_beyond
