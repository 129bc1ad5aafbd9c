"""Theorems: what holds between the ops, and of each of them, whatever the operands."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost import ops

from .cases import (
    BATCHED,
    OPS,
    OVER_KEYS,
    Case,
    assert_equal_up_to,
    every_case,
    every_op,
    floating,
    gradients,
    last,
    like_keys,
    network,
    operands,
    parts,
    table,
)


def zeros(*shape):
    return torch.zeros(*shape, dtype=torch.float64)


def no_output(case):
    inner = network(case)
    return inner | {"weight_out": torch.zeros_like(inner["weight_out"])}


PLAIN = {
    "a bias table of zeros": (ops.bias_attention, lambda c: {"bias": zeros(c.H, 4)}),
    "ALiBi with slopes of zero": (
        ops.bias_attention,
        lambda c: {"bias": -torch.arange(c.T).double() * zeros(c.H, 1)},
    ),
    "a dense bias of zeros": (ops.bias_attention, lambda c: {"bias": zeros(1, 1, c.S, c.T)}),
    "a relative table of zeros": (ops.relative_attention, lambda c: {"table": zeros(4, c.D)}),
    "a relative table of one row": (ops.relative_attention, lambda c: {"table": table(c, 1)}),
    "a CoPE table of zeros": (ops.cope_attention, lambda c: {"table": zeros(4, c.D)}),
    "a CoPE table of one row": (ops.cope_attention, lambda c: {"table": table(c, 1)}),
    "CoPE slopes of zero": (ops.cope_alibi_attention, lambda c: {"slopes": zeros(c.H)}),
    "a CoPE network without output": (ops.cope_mlp_attention, no_output),
    "forget gates that stay open": (
        ops.forgetting_attention,
        lambda c: {"log_f": zeros(c.B, c.H, c.T)},
    ),
}


@every_case
@pytest.mark.parametrize(("op", "extra"), PLAIN.values(), ids=PLAIN)
def test_without_positions_it_is_plain_attention(op, extra, case):
    given = operands(case)
    out = op(**given, **extra(case))
    torch.testing.assert_close(out, ops.softmax_attention(**given), rtol=0, atol=1e-12)


def open_gates(case, given):
    """Gate keys along one axis, on which every query is 1: gates of exactly 1 in fp64."""
    given["query"][..., 0] = 1
    gate_keys = torch.zeros(case.B, case.G, case.T, case.D, dtype=torch.float64)
    gate_keys[..., 0] = 100
    assert torch.sigmoid(torch.tensor(100.0, dtype=torch.float64)) == 1
    return gate_keys


@pytest.mark.parametrize("rows", [2, 4, 40])
@every_case
def test_cope_with_open_gates_is_relative_attention(case, rows):
    """Positions are then i − j + 1, from the query's own 1 on: row 0 is not used."""
    given, e = operands(case), table(case, rows)
    gate_keys = open_gates(case, given)
    out = ops.cope_attention(**given, table=e, gate_keys=gate_keys, gate_scale=1.0)
    expected = ops.relative_attention(**given, table=e[1:])
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@every_case
def test_cope_alibi_with_open_gates_is_alibi(case):
    given, slopes = operands(case), torch.randn(case.H, dtype=torch.float64)
    gate_keys = open_gates(case, given)
    out = ops.cope_alibi_attention(**given, slopes=slopes, gate_keys=gate_keys, gate_scale=1.0)
    by_distance = slopes[:, None] * torch.arange(case.T).double()
    expected = ops.bias_attention(**given, bias=by_distance)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@every_case
def test_a_cope_network_of_straight_lines_is_a_cope_table(case):
    """relu(p) · w is the table p · w, for as long as the table goes."""
    given, w = operands(case), torch.randn(1, case.D, dtype=torch.float64)
    whole = torch.arange(9).double()[:, None]
    straight = {"weight_in": torch.ones(1), "bias_in": torch.zeros(1), "weight_out": w}
    out = ops.cope_mlp_attention(**given, **straight)
    expected = ops.cope_attention(**given, table=whole * w)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@every_case
def test_a_constant_forget_gate_is_alibi(case):
    given = operands(case)
    f = torch.rand(case.H, dtype=torch.float64) * 0.8 + 0.1
    gates = f.log()[None, :, None].expand(case.B, -1, case.T)
    by_distance = f.log()[:, None] * torch.arange(case.T).double()
    out = ops.forgetting_attention(**given, log_f=gates)
    torch.testing.assert_close(
        out, ops.bias_attention(**given, bias=by_distance), rtol=0, atol=1e-12
    )


@every_case
def test_a_bias_table_is_a_relative_table_that_the_query_does_not_change(case):
    given, per_distance = operands(case), torch.randn(case.H, 4, dtype=torch.float64)
    given["query"][..., 0] = 1
    e = torch.zeros(case.H, 4, case.D, dtype=torch.float64)
    e[..., 0] = per_distance
    out = ops.relative_attention(**given, table=e)
    expected = ops.bias_attention(**given, bias=per_distance)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@every_op
def test_no_query_sees_a_later_key(op):
    case = Case(S=5, T=7)
    given = op.operands(case)
    before = op.call(**given)
    for key in range(3, 6):
        changed = dict(given)
        for name in OVER_KEYS:
            if name in given:
                changed[name] = given[name].clone()
                changed[name][:, :, key:] = torch.randn_like(given[name][:, :, key:])
        for one, other in zip(parts(op.call(**changed)), parts(before), strict=True):
            earlier = key - 2  # queries stand at keys 2 to 6
            assert torch.equal(one[:, :, :earlier], other[:, :, :earlier])
            assert not torch.equal(one[:, :, earlier:], other[:, :, earlier:])


@every_op
@settings(derandomize=True, max_examples=6, deadline=None, database=None)
@given(st.data())
def test_the_last_queries_over_cached_keys_are_the_last_of_all(op, data):
    """Decoding: S queries over T keys are the last S rows of T queries over T keys."""
    torch.manual_seed(0)  # the same operands when an example is tried again
    G = data.draw(st.integers(1, 3))
    T = data.draw(st.integers(1, 9))
    S = data.draw(st.integers(1, T))
    case = Case(
        start=data.draw(st.sampled_from([None, "window", "packed", "no key"])),
        B=data.draw(st.integers(1, 3)),
        H=G * data.draw(st.integers(1, 3)),
        G=G,
        S=T,
        T=T,
        D=data.draw(st.integers(1, 5)),
        V=data.draw(st.integers(1, 5)),
    )
    given = op.operands(case)
    whole = tuple(part[:, :, T - S :] for part in parts(op.call(**given)))
    assert_equal_up_to(1e-12, op.call(**last(case, S, given)), whole)


@every_op
def test_a_start_for_all_cuts_the_sequence(op):
    case, cut = Case(H=4, G=2), 2
    given = op.operands(case)
    start = torch.full((case.B, case.S), cut)
    whole = tuple(part[:, :, cut:] for part in parts(op.call(**given | {"start": start})))
    sliced = last(case, case.S - cut, given)
    for name in OVER_KEYS:
        if name in sliced:
            sliced[name] = sliced[name][:, :, cut:]
    if "bias" in sliced and sliced["bias"].ndim == 4:
        sliced["bias"] = sliced["bias"][..., cut:]
    assert_equal_up_to(1e-12, op.call(**sliced), whole)


@every_op
def test_a_start_before_the_first_key_is_none(op):
    given = op.operands(Case())
    assert_equal_up_to(0, op.call(**given | {"start": torch.full((2, 6), -3)}), op.call(**given))


@every_op
def test_a_query_that_sees_no_key_gets_zeros_and_gives_none(op):
    case = Case("no key", S=5, V=3)
    given = op.operands(case)
    tokens = torch.arange(case.T - case.S, case.T)
    blind = given["start"] > tokens
    assert blind.any()
    out, *remainder = parts(op.call(**given))
    assert not out.transpose(1, 2)[blind].any()
    assert out.transpose(1, 2)[~blind].any()
    for rest in remainder:
        assert (rest.transpose(1, 2)[blind] == 1).all()
    found = gradients(op.call, given)
    assert all(gradient.isfinite().all() for gradient in found.values())
    assert not found["query"].transpose(1, 2)[blind].any()


@every_op
def test_if_no_query_sees_a_key_gradients_are_zero(op):
    given = op.operands(Case()) | {"start": torch.full((2, 6), 6)}
    for name, gradient in gradients(op.call, given).items():
        assert not gradient.any(), name


@every_op
def test_rows_of_a_batch_do_not_mix(op):
    case = Case("padding", B=3)
    given = op.operands(case)
    together = parts(op.call(**given))
    for b in range(case.B):
        alone = {
            name: operand[b : b + 1] if name in BATCHED else operand
            for name, operand in given.items()
        }
        if "bias" in alone and alone["bias"].ndim == 4:
            alone["bias"] = alone["bias"][b : b + 1]
        expected = tuple(part[b : b + 1] for part in together)
        assert_equal_up_to(1e-12, op.call(**alone), expected)


@every_op
def test_grouped_heads_are_heads_whose_keys_are_repeated(op):
    case = Case(H=6, G=2, S=4)
    given = op.operands(case)
    repeated = {
        name: operand.repeat_interleave(3, 1) if name in ("key", "value", "gate_keys") else operand
        for name, operand in given.items()
    }
    assert_equal_up_to(1e-12, op.call(**given), op.call(**repeated))


@every_op
def test_operands_are_left_as_they_were(op):
    given = op.operands(Case("window"))
    copies = {name: operand.clone() for name, operand in floating(given).items()}
    op.call(**given)
    assert all(torch.equal(given[name], copy) for name, copy in copies.items())


@every_op
def test_operands_need_not_be_contiguous(op):
    """As (batch, time, heads, head_dim) projections come out, transposed."""
    given = op.operands(Case(H=4, G=2))
    expected = op.call(**given)
    for name in ("query", "key", "value"):
        given[name] = given[name].transpose(1, 2).contiguous().transpose(1, 2)
    assert_equal_up_to(1e-12, op.call(**given), expected)


@pytest.mark.parametrize("start", [None, "window", "no key"])
@every_op
def test_gradients_are_slopes(op, start):
    """Central differences, at random operands: away from CoPE's and the network's kinks."""
    case = Case(start, B=2, H=2, G=1, S=2, T=3, D=2, V=2)
    operands = op.operands(case)
    leaves = {name: x.requires_grad_() for name, x in floating(operands).items()}

    def call(*tensors):
        return op.call(**operands | dict(zip(leaves, tensors, strict=True)))

    assert torch.autograd.gradcheck(call, tuple(leaves.values()))


@every_op
def test_functional_gradients_are_autograds(op):
    given = op.operands(Case("padding"))

    def total(query):
        return sum(part.sum() for part in parts(op.call(**given | {"query": query})))

    query = given["query"].clone().requires_grad_()
    (expected,) = torch.autograd.grad(total(query), query)
    found = torch.func.grad(total)(given["query"])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_order_is_what_positions_are_for():
    """Without start, plain attention of the last token does not know the order of the keys."""
    case = Case(S=1, T=7)
    order = torch.tensor([3, 0, 5, 1, 4, 2, 6])  # the query's own key stays the last
    for name, op in OPS.items():
        given = op.operands(case)
        shuffled = {
            key: operand[:, :, order] if key in OVER_KEYS else operand
            for key, operand in given.items()
        }
        change = max(
            (one - other).abs().max()
            for one, other in zip(parts(op.call(**given)), parts(op.call(**shuffled)), strict=True)
        )
        assert change < 1e-12 if name == "softmax" else change > 1e-3, name


def test_positions_grow_into_the_past():
    """A table that only its last row fills draws attention to keys at least P counts away."""
    case = Case(B=1, H=1, G=1, T=9, S=9)
    given = operands(case)
    gate_keys = open_gates(case, given)
    given |= {"key": torch.zeros_like(like_keys(case)), "value": torch.eye(9).double()[None, None]}
    e = torch.zeros(4, case.D, dtype=torch.float64)
    e[3, 0] = 40  # the query's 1 on axis 0 reads it
    weights = ops.cope_attention(**given, table=e, gate_keys=gate_keys, gate_scale=1.0)[0, 0, -1]
    far = torch.arange(9) <= 6  # distance 2 and more: counts of 3 and more
    torch.testing.assert_close(weights[far], torch.ones(7).double() / 7, rtol=0, atol=1e-12)
    assert weights[~far].max() < math.exp(-39)
