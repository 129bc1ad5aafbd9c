"""Every op written out from its paper's equations, one query at a time, over the keys that it sees.

Slow, and independent of the library: it uses no function of it, nor its way of working, which is
whole matrices, masks and running sums. The signatures are those of `milepost.ops`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Row:
    """Query s of head h in batch b: the token i, which sees `keys`, those of key head g."""

    b: int
    h: int
    g: int
    s: int
    i: int
    keys: list[int]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    start: Tensor | None,
    weigh: Callable[[Row], Tensor],
) -> Tensor:
    """Σ_j a_ij v_j, where `weigh(row)` is a_ij over `row.keys`."""
    B, H, S, _ = query.shape
    G, T = key.shape[1:3]
    out = []
    for b in range(B):
        for h in range(H):
            for s in range(S):
                i = s + T - S
                first = 0 if start is None else max(0, int(start[b, s]))
                row = Row(b, h, h * G // H, s, i, list(range(first, i + 1)))
                out.append(torch.einsum("j,jv->v", weigh(row), value[b, row.g, row.keys]))
    return torch.stack(out).reshape(B, H, S, -1)


def content(query: Tensor, key: Tensor, row: Row, scale: float | None) -> Tensor:
    """scale · q_i·k_j of each key."""
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    return scale * torch.einsum("d,jd->j", query[row.b, row.h, row.s], key[row.b, row.g, row.keys])


def by_distance(entries: Tensor, row: Row) -> Tensor:
    """Of a list over distances, the entry of each key; the last one serves all beyond."""
    return entries[[min(row.i - j, len(entries) - 1) for j in row.keys]]


def of_head(table: Tensor, h: int) -> Tensor:
    """A table's (P + 1, D) rows for head h."""
    return table if table.ndim == 2 else table[h]


def softmax(query, key, value, *, scale=None, start=None):
    """Vaswani et al. 2017, Eq. 1."""

    def weigh(row):
        return content(query, key, row, scale).softmax(0)

    return attend(query, key, value, start, weigh)


def bias(query, key, value, bias, *, scale=None, start=None):
    """Press et al. 2022: a bias on each logit, by distance or as it is."""

    def weigh(row):
        if bias.ndim == 2:
            b_ij = by_distance(bias[row.h], row)
        else:
            b_ij = bias[row.b % bias.shape[0], row.h % bias.shape[1], row.s, row.keys]
        return (content(query, key, row, scale) + b_ij).softmax(0)

    return attend(query, key, value, start, weigh)


def relative(query, key, value, table, *, scale=None, start=None):
    """Shaw et al. 2018, Eq. 4; CoPE's Eq. 1, with the content scaled."""

    def weigh(row):
        vectors = by_distance(of_head(table, row.h), row)
        logits = content(query, key, row, scale) + vectors @ query[row.b, row.h, row.s]
        return logits.softmax(0)

    return attend(query, key, value, start, weigh)


def counts(query, gate_keys, row, scale):
    """CoPE's Eqs. 3 and 4: p_ij = Σ_{k=j}^{i} g_ik of each key."""
    gates = content(query, gate_keys, row, scale).sigmoid()
    return [gates[n:].sum() for n in range(len(gates))]


def cope(
    query,
    key,
    value,
    table,
    *,
    gate_keys=None,
    position_query=None,
    relative_table=None,
    scale=None,
    gate_scale=None,
    position_scale=1.0,
    start=None,
):
    """CoPE's Eqs. 3 to 6: the vector e[p_ij] is interpolated, and then meets the query."""
    position_query = query if position_query is None else position_query
    gate_query, gate_keys = (query, key) if gate_keys is None else (position_query, gate_keys)
    gate_scale = scale if gate_scale is None else gate_scale

    def at(p, e):
        p = p.clamp(max=len(e) - 1)
        floor, ceil = math.floor(p.item()), math.ceil(p.item())
        return e[floor] * (1 - p + floor) + e[ceil] * (p - floor)

    def weigh(row):
        q = position_query[row.b, row.h, row.s]
        e = of_head(table, row.h)
        logits = content(query, key, row, scale)
        positions = counts(gate_query, gate_keys, row, gate_scale)
        if positions:
            logits = logits + position_scale * torch.stack([q @ at(p, e) for p in positions])
        if relative_table is not None:
            logits = logits + by_distance(of_head(relative_table, row.h), row) @ q
        return logits.softmax(0)

    return attend(query, key, value, start, weigh)


def cope_alibi(
    query, key, value, slopes, *, gate_keys=None, scale=None, gate_scale=None, start=None
):
    """CoPE's Eq. 10: m · p_ij."""
    gate_keys = key if gate_keys is None else gate_keys
    gate_scale = scale if gate_scale is None else gate_scale

    def weigh(row):
        logits = content(query, key, row, scale)
        positions = counts(query, gate_keys, row, gate_scale)
        if positions:
            logits = logits + slopes[row.h] * torch.stack(positions)
        return logits.softmax(0)

    return attend(query, key, value, start, weigh)


def cope_mlp(
    query,
    key,
    value,
    weight_in,
    bias_in,
    weight_out,
    *,
    gate_keys=None,
    scale=None,
    gate_scale=None,
    max_position=None,
    start=None,
):
    """CoPE's Appendix C: e[p] is what a network with one hidden layer makes of p."""
    gate_keys = key if gate_keys is None else gate_keys
    gate_scale = scale if gate_scale is None else gate_scale

    def at(p):
        if max_position is not None:
            p = p.clamp(max=max_position)
        return (p * weight_in + bias_in).relu() @ weight_out

    def weigh(row):
        q = query[row.b, row.h, row.s]
        logits = content(query, key, row, scale)
        positions = counts(query, gate_keys, row, gate_scale)
        if positions:
            logits = logits + torch.stack([q @ at(p) for p in positions])
        return logits.softmax(0)

    return attend(query, key, value, start, weigh)


def forgetting(query, key, value, log_f, *, scale=None, start=None):
    """FoX: D_ij = Σ_{l=j+1}^{i} log f_l on each logit."""

    def weigh(row):
        logits = content(query, key, row, scale)
        gates = log_f[row.b, row.h]
        between = [gates[j + 1 : row.i + 1].sum() for j in row.keys]
        return (logits + torch.stack(between)).softmax(0) if between else logits

    return attend(query, key, value, start, weigh)


def stick_breaking(query, key, value, *, attend_current=False, scale=None, start=None):
    """Tan et al. 2024: a_ij = β_ij Π_{j<k<i} (1 − β_ik), and 1 − Σ_j a_ij remains."""
    remainders = []

    def weigh(row):
        beta = content(query, key, row, scale).sigmoid()
        if not attend_current:
            beta = beta * torch.tensor([j < row.i for j in row.keys], dtype=torch.bool)
        untouched = [(1 - beta[n + 1 :]).prod() for n in range(len(beta))]
        weights = beta * torch.stack(untouched) if untouched else beta
        remainders.append(1 - weights.sum())
        return weights

    out = attend(query, key, value, start, weigh)
    return out, torch.stack(remainders).reshape(query.shape[:3])
