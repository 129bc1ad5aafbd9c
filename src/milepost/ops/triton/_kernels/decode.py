"""One query or a few against many keys: the keys are split over programs, and the parts joined.

A program takes all queries of all heads that share its keys, so that keys are read once. Each part
has a softmax of its own, or a stick of its own, which joining scales. Only a count changes logits
in another way: where the op counts, `scores` runs before, so that each part knows what newer ones
have counted. It keeps the products of queries and keys, which `decode` reads in place of the keys.
"""

import triton
import triton.language as tl

from milepost.ops.triton._kernels import arithmetic, tiles
from milepost.ops.triton._kernels.policies import softmax, stick_breaking


@triton.jit
def packed_rows(
    given,
    key_head,
    const: tl.constexpr,
):
    """The head and the query of each row, and whether there is one."""
    rows = tl.arange(0, const.M)
    inside = rows < given.group * given.queries
    head = key_head * given.group + tl.minimum(rows // given.queries, given.group - 1)
    return head, tl.where(inside, rows % given.queries, given.queries), inside


@triton.jit
def first_packed(given, batch, head, query, inside):
    """The oldest key that each row sees, and the oldest that any row needs."""
    first = tl.where(inside, 0, tiles.NO_KEY)
    if given.start is not None:
        at = given.start + batch.to(tl.int64) * given.queries + query
        first = tl.load(at, mask=inside, other=tiles.NO_KEY)
    oldest = tl.min(first)
    if given.needed is not None:
        at = given.needed + (batch * given.heads + head).to(tl.int64) * given.queries + query
        needed = tl.load(at, mask=inside, other=tiles.NO_KEY)
        oldest = tl.maximum(oldest, tl.min(needed))
    return first, oldest


@triton.jit
def scores(
    given,
    products,
    counted,
    const: tl.constexpr,
    SHARE: tl.constexpr,
):
    """Writes products with the gates' keys, fp32 (B, H, S, T), and counts (parts, B, H, S).

    grid: parts, G, B. A part is SHARE tiles of N keys. Counts are in quanta.
    """
    S = given.queries
    T = given.keys
    part = tl.program_id(0)
    key_head = tl.program_id(1)
    batch = tl.program_id(2)
    head, query, inside = packed_rows(given, key_head, const)
    first, _ = first_packed(given, batch, head, query, inside)
    if given.gate_query is not None:
        q = tiles.load_rows(given.gate_query, batch, head, query, S, const.D, True)
    else:
        q = tiles.load_rows(given.query, batch, head, query, S, const.D, True)
    position = query + (T - S)
    row = (batch * given.heads + head).to(tl.int64) * S + query
    count = tl.zeros((const.M,), tl.int64)
    for step in tl.range(0, SHARE):
        keys = (part * SHARE + step) * const.N + tl.arange(0, const.N)
        if given.gate_key is not None:
            key = tiles.load_rows(given.gate_key, batch, key_head, keys, T, const.D, True)
        else:
            key = tiles.load_rows(given.key, batch, key_head, keys, T, const.D, True)
        content = tiles.products(q, key, const.D, const, 1)
        there = inside[:, None] & (keys < T)[None, :]
        tl.store(products + row[:, None] * T + keys[None, :], content, mask=there)
        seen = (keys[None, :] <= position[:, None]) & (keys[None, :] >= first[:, None])
        gates = arithmetic.make_gates(content * given.gate_scale, const.APPROXIMATE)
        count += arithmetic.quanta(tl.where(seen, gates, 0.0), 1)
    everything = tl.num_programs(2).to(tl.int64) * given.heads * S
    tl.store(counted + part * everything + row, count, mask=inside)


@triton.jit
def decode(
    given,
    products,
    counted,
    out_parts,
    tops,
    totals,
    policy,
    const: tl.constexpr,
    SHARE: tl.constexpr,
):
    """Writes the output of each part.

    out_parts     (parts, B, H, S, V), weighted sums of values, not divided by the sum of weights
    tops, totals  (parts, B, H, S), a logit, and the sum relative to it; or, in totals alone, how
                  much of its stick a part breaks
    grid: parts, G, B.
    """
    S = given.queries
    T = given.keys
    part = tl.program_id(0)
    key_head = tl.program_id(1)
    batch = tl.program_id(2)
    head, query, inside = packed_rows(given, key_head, const)
    first, oldest = first_packed(given, batch, head, query, inside)
    position = query + (T - S - given.lag)
    everything = tl.num_programs(2).to(tl.int64) * given.heads * S
    row = (batch * given.heads + head).to(tl.int64) * S + query
    q = tiles.load_rows(given.query, batch, head, query, S, const.D, True)
    carry = tl.zeros((const.M,), tl.float32 if const.STICK else tl.int64)
    if const.COUNTS:
        newer = part + 1
        while newer < tl.num_programs(0):
            carry += tl.load(counted + newer * everything + row, mask=inside, other=0)
            newer += 1
    top = tl.full((const.M,), float("-inf"), tl.float32)
    total = tl.zeros((const.M,), tl.float32)
    acc = tl.zeros((const.M, const.BLOCK_V), tl.float32)

    end = tl.maximum(part * SHARE, oldest // const.N)
    tile = tl.minimum((part + 1) * SHARE, tl.cdiv(T, const.N)) - 1
    if const.STICK:  # which may be used up before the end
        going = tile >= end
        while going:
            top, total, carry, acc = meet(
                given, products, q, batch, key_head, head, query, inside, row, position, first,
                tile, top, total, carry, acc, policy, const,
            )  # fmt: skip
            tile -= 1
            used_up = (carry >= given.settled) | (inside == 0)
            going = (tile >= end) & (tl.min(used_up.to(tl.int32)) == 0)
    else:
        for _ in tl.range(0, tile + 1 - end):
            top, total, carry, acc = meet(
                given, products, q, batch, key_head, head, query, inside, row, position, first,
                tile, top, total, carry, acc, policy, const,
            )  # fmt: skip
            tile -= 1

    at = part * everything + row
    tl.store(totals + at, carry if const.STICK else total, mask=inside)
    if not const.STICK:
        tl.store(tops + at, top, mask=inside)
    across = tl.arange(0, const.BLOCK_V)[None, :]
    tl.store(
        out_parts + at[:, None] * const.V + across, acc, mask=inside[:, None] & (across < const.V)
    )


@triton.jit
def meet(
    given,
    products,
    q,
    batch,
    key_head,
    head,
    query,
    inside,
    row,
    position,
    first,
    tile,
    top,
    total,
    carry,
    acc,
    policy,
    const: tl.constexpr,
):
    """One tile of keys: what it adds, and what is carried on."""
    T = given.keys
    keys = tile * const.N + tl.arange(0, const.N)
    seen = (keys[None, :] <= position[:, None]) & (keys[None, :] >= first[:, None])
    gates = tl.zeros((const.M, const.N), tl.float32)
    if const.COUNTS:
        there = inside[:, None] & (keys < T)[None, :]
        gates = tl.load(products + row[:, None] * T + keys[None, :], mask=there, other=0.0)
    if const.COUNTS and given.gate_key is None:
        content = gates
    else:
        key = tiles.load_rows(given.key, batch, key_head, keys, T, const.D, True)
        content = tiles.products(q, key, const.D, const, 1)
    content *= given.scale
    if const.STICK:
        weights, spent, _ = stick_breaking.weights(content, seen, carry[:, None], const.N, 1)
        carry += tl.sum(spent, 1)
    else:
        if const.COUNTS:
            gates = arithmetic.make_gates(gates * given.gate_scale, const.APPROXIMATE)
            gates = tl.where(seen, gates, 0.0)
        logit, _, _, _ = policy.logits(
            content, gates, carry[:, None], given, batch, head[:, None], query[:, None],
            keys[None, :], tile, const, 1, True, True,
        )  # fmt: skip
        logit = tl.where(seen, logit, float("-inf"))
        weights, top, total, acc = softmax.weights(logit, top, total, acc)
        if const.COUNTS:
            carry += arithmetic.quanta(gates, 1)
    value = tiles.load_rows(given.value, batch, key_head, keys, T, const.V, True).tile
    acc = arithmetic.dot(weights.to(value.dtype), value, acc, const.PRECISION)
    return top, total, carry, acc


@triton.jit
def join(
    out_parts,
    tops,
    totals,
    out,
    residual,
    parts,
    rows,
    STICK: tl.constexpr,
    V: tl.constexpr,
    BLOCK_V: tl.constexpr,
    PARTS: tl.constexpr,
):
    """The parts of a row, joined. grid: rows, which are B · H · S. PARTS is a power of 2."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    there = part < parts
    across = tl.arange(0, BLOCK_V)
    at = part.to(tl.int64) * rows + row
    total = tl.load(totals + at, mask=there, other=0.0)
    if STICK:
        # parts are oldest first: what newer ones have spent
        share = tl.exp2(total - tl.cumsum(total, 0, reverse=True))
        tl.store(residual + row, tl.exp2(-tl.sum(total, 0)))
    else:
        top = tl.load(tops + at, mask=there, other=float("-inf"))
        highest = tl.max(top, 0)
        base = tl.where(highest == float("-inf"), 0.0, highest)
        share = tl.exp2(top - base)
        sum_of_row = tl.sum(total * share, 0)
        inverse = tl.where(sum_of_row > 0, 1 / sum_of_row, 0.0)
        tl.store(residual + row, base)
        tl.store(residual + rows + row, inverse)
        share *= inverse
    within = there[:, None] & (across < V)[None, :]
    parts_of_row = tl.load(out_parts + at[:, None] * V + across[None, :], mask=within, other=0.0)
    joined = tl.sum(parts_of_row * share[:, None], 0)
    tl.store(out + row * V + across, joined.to(out.dtype.element_ty), mask=across < V)
