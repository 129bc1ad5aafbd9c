"""CoPE against the paper's equations and against its Listing 1."""

import math

import pytest
import torch

from milepost.ops import cope_attention

from . import equations
from .cases import (
    Case,
    assert_equal_up_to,
    check,
    every_case,
    every_table,
    gradients,
    like_keys,
    like_queries,
    operands,
    table,
)


def listing_head(query, key, value, table, mask):
    """Listing 1 (arXiv 2405.18719, Appendix B) step by step, of one head: (B, S, D) each.

    Its mask is added to the logits as log(mask) before the gates see them; positions are a running
    sum over the reversed keys; both neighbours are gathered from the logits of whole positions.
    """
    logits = torch.einsum("bsd,btd->bst", query, key) / math.sqrt(query.shape[-1]) + mask.log()
    backwards = torch.sigmoid(logits).flip(2)
    position = torch.cumsum(backwards, 2).flip(2).clamp(max=len(table) - 1)
    at_whole = torch.einsum("bsd,pd->bsp", query, table)
    above = torch.gather(at_whole, 2, torch.ceil(position).long())
    below = torch.gather(at_whole, 2, torch.floor(position).long())
    share = position - torch.floor(position).detach()
    weights = (logits + above * share + below * (1 - share)).softmax(2)
    return torch.einsum("bst,btv->bsv", weights, value)


def listing_1(query, key, value, table, start):
    """The listing on our operands, head by head, each with its own or the one table."""
    H, S = query.shape[1:3]
    G, T = key.shape[1:3]
    mask = torch.ones(query.shape[0], S, T, dtype=query.dtype).tril(T - S)
    if start is not None:
        mask = mask * (torch.arange(T) >= start[..., None])
    tables = table.expand(H, *table.shape[-2:])
    heads = []
    for h in range(H):
        g = h // (H // G)
        heads.append(listing_head(query[:, h], key[:, g], value[:, g], tables[h], mask))
    return torch.stack(heads, 1)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(), id="S=T"),
        pytest.param(Case(S=3, T=7), id="S<T"),
        pytest.param(Case(S=1, T=7), id="S=1"),
        pytest.param(Case(H=4, G=2, S=40, T=40, V=7), id="longer, grouped, other V"),
        pytest.param(Case("window"), id="window"),
        pytest.param(Case("packed", H=4, G=1), id="packed, one key head"),
    ],
)
@pytest.mark.parametrize("per_head", [False, True], ids=["shared", "per head"])
@pytest.mark.parametrize("npos_max", [1, 2, 4, 64], ids="npos_max {}".format)
def test_cope_is_listing_1(case, npos_max, per_head):
    given = operands(case) | {"table": table(case, npos_max, per_head=per_head)}
    assert_equal_up_to(1e-12, cope_attention(**given), listing_1(**given))
    ours, theirs = gradients(cope_attention, given), gradients(listing_1, given)
    for name in ("query", "key", "value", "table"):
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-12)


@every_case
@every_table
def test_it_is_its_equations(case, rows, per_head):
    given = operands(case) | {"table": table(case, rows, per_head=per_head)}
    check(cope_attention, equations.cope, given)


SCALES = {
    "content and gates": {"scale": 1.0},
    "position": {"position_scale": 0.5},
    "gates alone": {"gate_scale": 1.3},
    "all": {"scale": 0.3, "gate_scale": 1.3, "position_scale": -2.0},
    "nothing counted by content": {"gate_scale": 0.0},
}


@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
def test_each_scale_is_its_own(scales):
    given = operands(Case(H=4, G=2)) | {"table": table(Case())} | scales
    check(cope_attention, equations.cope, given)


def one_head(q, k, v, e, divide_gates, divide_content, divide_position):
    """Eqs. 3, 4, 7, 8 (its weights in the listing's order) and 9 as printed, with divisors."""
    z = q @ e.T
    out = []
    for i in range(len(q)):
        g = torch.sigmoid(k @ q[i] / divide_gates)
        logits = []
        for j in range(i + 1):
            p = min(sum(g[m].item() for m in range(j, i + 1)), len(e) - 1)
            below, above = math.floor(p), math.ceil(p)
            z_at_p = (p - below) * z[i, above] + (1 - p + below) * z[i, below]
            logits.append(k[j] @ q[i] / divide_content + z_at_p / divide_position)
        out.append(torch.softmax(torch.stack(logits), 0) @ v[: i + 1])
    return torch.stack(out)


@pytest.mark.parametrize(
    ("options", "divisors"),
    [
        pytest.param({}, (3, 3, 1), id="listing 1"),
        pytest.param({"scale": 1.0}, (1, 1, 1), id="equations"),
        pytest.param({"position_scale": 1 / 3}, (3, 3, 3), id="released code"),
    ],
)
def test_the_three_published_forms_divide_by_root_d(options, divisors):
    case = Case(B=1, H=1, G=1, D=9)
    given, e = operands(case), table(case)
    expected = one_head(*(given[name][0, 0] for name in ("query", "key", "value")), e, *divisors)
    out = cope_attention(**given, table=e, **options)
    torch.testing.assert_close(out[0, 0], expected, rtol=0, atol=1e-12)


@every_case
def test_sep_keys_open_the_gates(case):
    given = operands(case) | {"table": table(case), "gate_keys": like_keys(case)}
    check(cope_attention, equations.cope, given)


@pytest.mark.parametrize("case", [Case(H=4, G=2), Case("padding", S=4)], ids=["grouped", "padding"])
def test_val_gates_are_the_values_as_gate_keys(case):
    given = operands(case) | {"table": table(case)}

    def val_gates(attention):
        return lambda value, **rest: attention(value=value, gate_keys=value, **rest)

    check(val_gates(cope_attention), val_gates(equations.cope), given)


@every_case
@pytest.mark.parametrize("separate", [False, True], ids=["keys", "gate keys"])
def test_position_queries_meet_the_table_and_the_gate_keys(case, separate):
    given = operands(case) | {"table": table(case), "position_query": like_queries(case)}
    given["gate_scale"] = 1.3  # so that the gates are not those of the content
    if separate:
        given["gate_keys"] = like_keys(case)
    check(cope_attention, equations.cope, given)


@every_case
@every_table
def test_a_relative_table_is_added(case, rows, per_head):
    given = operands(case) | {
        "table": table(case),
        "relative_table": table(case, rows, per_head=per_head),
        "position_scale": 0.5,  # not of the relative term
        "position_query": like_queries(case),  # of it too
    }
    check(cope_attention, equations.cope, given)


@pytest.mark.parametrize("npos_max", [2, 3, 9])
def test_at_whole_positions_the_slope_is_that_of_the_listing(npos_max):
    """Gates of 1/2 count 1/2, 1, 3/2, …: at 1, where ⌈p⌉ = ⌊p⌋, nothing is learnt of p."""
    given = operands(Case()) | {"table": table(Case(), npos_max)}
    given["key"] = torch.zeros_like(given["key"])
    ours, theirs = gradients(cope_attention, given), gradients(listing_1, given)
    for name in ("query", "key", "table"):
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-12)
    check(cope_attention, equations.cope, given)


def test_nan_comes_out_as_nan():
    """A model that diverged must be told by its loss, not by an index out of bounds."""
    given = operands(Case()) | {"table": table(Case())}
    given["query"][0, 0, 3] = float("nan")
    out = cope_attention(**given)
    assert out[0, 0, 3].isnan().all()
    out[0, 0, 3] = 0
    assert out.isfinite().all()
