"""Attention with a bias against its equation."""

import pytest
import torch

from milepost.ops import bias_attention

from . import equations
from .cases import Case, check, every_case, operands


@every_case
@pytest.mark.parametrize("distances", [1, 3, 40], ids="{} distances".format)
def test_a_table_is_read_by_distance(case, distances):
    table = torch.randn(case.H, distances, dtype=torch.float64)
    check(bias_attention, equations.bias, operands(case) | {"bias": table})


@every_case
def test_a_dense_bias_is_read_as_it_is(case):
    dense = torch.randn(case.B, case.H, case.S, case.T, dtype=torch.float64)
    check(bias_attention, equations.bias, operands(case) | {"bias": dense})


@pytest.mark.parametrize("leading", [(1, 4), (2, 1), (1, 1)], ids=str)
def test_a_dense_bias_may_be_shared_by_batch_and_heads(leading):
    case = Case(H=4, G=2)
    dense = torch.randn(*leading, case.S, case.T, dtype=torch.float64)
    check(bias_attention, equations.bias, operands(case) | {"bias": dense})


@pytest.mark.parametrize("rubbish", [float("nan"), float("inf"), float("-inf"), 1e308])
def test_entries_of_later_keys_are_not_read(rubbish):
    given = operands(Case())
    dense = torch.randn(2, 2, 6, 6, dtype=torch.float64)
    expected = bias_attention(**given, bias=dense)
    later = torch.ones(6, 6, dtype=torch.bool).triu(1)
    spoilt = dense.masked_fill(later, rubbish).requires_grad_()
    out = bias_attention(**given, bias=spoilt)
    assert torch.equal(out, expected)
    (gradient,) = torch.autograd.grad(out.sum(), spoilt)
    assert gradient.isfinite().all()
    assert not gradient[..., later].any()


def test_minus_infinity_hides_a_pair():
    given = operands(Case("padding"))
    start = given.pop("start")
    hidden = torch.arange(6) < start[:, None, :, None]
    dense = torch.zeros(2, 1, 6, 6, dtype=torch.float64).masked_fill(hidden, float("-inf"))
    given = {name: tensor.requires_grad_() for name, tensor in given.items()}
    out = bias_attention(**given, bias=dense)
    expected = bias_attention(**given, bias=torch.zeros_like(dense), start=start)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    assert not out[1, :, :3].any()  # rows that see nothing, not even later keys
    gradients = torch.autograd.grad(out.sum(), list(given.values()))
    assert all(gradient.isfinite().all() for gradient in gradients)
