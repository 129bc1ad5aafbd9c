"""Stick-breaking: what becomes of the remainder (the attention is tested with the op)."""

import pytest
import torch

from milepost.encoding import Host, Operands, Positions, build
from milepost.errors import UsageError

HOST = Host(dim=16, layers=2, heads=4, key_heads=2, head_dim=4, max_length=32)


@pytest.fixture
def attended():
    return torch.randn(2, 4, 5, 4), torch.rand(2, 4, 5)


@pytest.fixture
def operands():
    key, value = torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4)
    return Operands(torch.randn(2, 4, 5, 4), {"key": key, "value": value})


def read(remainder, attended, operands):
    layer = build("stick-breaking", HOST, {"remainder": remainder})[0]
    if remainder == "bias":
        with torch.no_grad():
            layer.bias.normal_()
            layer.norm.weight.normal_()
            layer.norm.bias.normal_()
    out, state = layer.read(attended, operands=operands, state="untouched")
    assert state == "untouched"
    return layer, out


def test_dropped_it_leaves_the_output_as_it_is(attended, operands):
    _, out = read("drop", attended, operands)
    assert torch.equal(out, attended[0])


def test_the_current_value_takes_it(attended, operands):
    _, out = read("current", attended, operands)
    for h in range(4):
        share = attended[1][:, h, :, None]
        expected = attended[0][:, h] + share * operands.memory["value"][:, h // 2]
        torch.testing.assert_close(out[:, h], expected)


def test_a_learned_vector_takes_it_and_heads_are_normalised(attended, operands):
    layer, out = read("bias", attended, operands)
    for h in range(4):
        mixed = attended[0][:, h] + attended[1][:, h, :, None] * layer.bias[h]
        mean, variance = mixed.mean(-1, keepdim=True), mixed.var(-1, keepdim=True, correction=0)
        rows = slice(4 * h, 4 * h + 4)
        expected = (mixed - mean) / (variance + 1e-5).sqrt()
        expected = expected * layer.norm.weight[rows] + layer.norm.bias[rows]
        torch.testing.assert_close(out[:, h], expected)


def test_attending_to_itself_is_an_option():
    layer = build("stick-breaking", HOST, {"attend_current": True})[0]
    q, k = torch.randn(1, 4, 5, 4), torch.randn(1, 2, 5, 4)
    positions = Positions(torch.arange(5), 0, 5)
    operands = layer.encode(q, k, k, x=q, positions=positions, state=None)
    _, remainder = layer.op(query=q, **operands.memory, **operands.params)
    assert (remainder[:, :, 0] < 1).all()


def test_an_unknown_remainder_is_refused():
    with pytest.raises(UsageError, match="did you mean 'current'"):
        build("stick-breaking", HOST, {"remainder": "curent"})
