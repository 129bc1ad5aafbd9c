"""FoX: the gate that the encoding computes (the attention is tested with the op)."""

import pytest
import torch

from milepost.encoding import Host, Positions, build
from milepost.errors import UsageError

HOST = Host(dim=16, layers=2, heads=4, key_heads=2, head_dim=4, max_length=32)


def gates(layer, x):
    q, k = torch.randn(2, 4, 5, 4, dtype=x.dtype), torch.randn(2, 2, 5, 4, dtype=x.dtype)
    positions = Positions(torch.arange(5), 0, 5)
    return layer.encode(q, k, k, x=x, positions=positions, state=None).sums["decay"]


def test_the_gate_is_a_sigmoid_of_a_projection_for_each_query_head():
    layer = build("fox", HOST, {"bias": 0.5})[0].double()
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    log_f = gates(layer, x)
    assert log_f.shape == (2, 4, 5)
    for h in range(4):
        f = torch.sigmoid(x @ layer.gate.weight[h] + layer.gate.bias[h])
        torch.testing.assert_close(log_f[:, h], f.log(), rtol=0, atol=1e-12)


def test_it_starts_as_the_authors_do():
    torch.manual_seed(0)
    layer = build("fox", Host(512, 1, 64, 64, 8, 32))[0]
    assert not layer.gate.bias.any()
    assert abs(layer.gate.weight.std().item() - 0.02) < 0.001  # 32768 draws: sd of sd 8e-5


def test_gates_are_in_fp32_whatever_the_model_is_in():
    layer = build("fox", HOST)[0].bfloat16()
    assert gates(layer, torch.randn(2, 5, 16).bfloat16()).dtype == torch.float32


def test_a_negative_deviation_is_refused():
    with pytest.raises(UsageError, match=r"std must not be negative, got -0.1: 0.02 is usual"):
        build("fox", HOST, {"std": -0.1})
    assert not build("fox", HOST, {"std": 0})[0].gate.weight.any()


def test_a_strength_raises_the_gates_to_a_power_for_each_head():
    layer = build("fox", HOST, {"strength": 0.25})[0].double()
    plain = build("fox", HOST)[0].double()
    plain.gate = layer.gate
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    torch.testing.assert_close(gates(layer, x), 0.25 * gates(plain, x))
    with torch.no_grad():
        layer.strength.copy_(torch.tensor([0.0, 1.0, -0.5, 2.0]))
    found = gates(layer, x)
    assert not found[:, 0].any()
    torch.testing.assert_close(found[:, 1], gates(plain, x)[:, 1])
    assert not found[:, 2].any()  # held at 0
    torch.testing.assert_close(found[:, 3], 2 * gates(plain, x)[:, 3])


@pytest.mark.parametrize("sign", [1, -1])
def test_a_strength_at_zero_or_below_can_only_be_raised(sign):
    layer = build("fox", HOST, {"strength": 0.0})[0]
    with torch.no_grad():
        layer.strength[1:3] = torch.tensor([-0.1, 0.1])
    # log f is below 0: more of it means less strength
    (-sign * gates(layer, torch.randn(2, 5, 16)).sum()).backward()
    raised = layer.strength.grad < 0
    assert raised.tolist() == [sign < 0] * 4
    lowered = layer.strength.grad > 0
    assert lowered.tolist() == [False, False, sign > 0, False]


def test_a_negative_strength_is_refused():
    with pytest.raises(UsageError, match=r"strength must not be negative, .*got -1.0: 0 forgets"):
        build("fox", HOST, {"strength": -1.0})
