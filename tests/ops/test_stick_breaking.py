"""Stick-breaking attention against its product form."""

import math

import pytest
import torch

from milepost.ops import stick_breaking_attention

from . import equations
from .cases import Case, check, every_case, operands

both = pytest.mark.parametrize("attend_current", [False, True], ids=["past", "past and current"])


@every_case
@both
def test_it_is_its_equation(case, attend_current):
    given = operands(case) | {"attend_current": attend_current}
    check(stick_breaking_attention, equations.stick_breaking, given)


@both
def test_scale_takes_the_place_of_one_over_root_d(attend_current):
    given = operands(Case(H=4, G=2)) | {"attend_current": attend_current, "scale": 0.37}
    check(stick_breaking_attention, equations.stick_breaking, given)


@every_case
@both
def test_weights_and_remainder_make_a_whole_stick(case, attend_current):
    given = operands(case)
    each_key = torch.eye(case.T, dtype=torch.float64).expand(case.B, case.G, -1, -1)
    weights, remainder = stick_breaking_attention(
        **given | {"value": each_key}, attend_current=attend_current
    )
    assert (weights >= 0).all()
    assert (remainder >= 0).all()
    whole = weights.sum(-1) + remainder
    torch.testing.assert_close(whole, torch.ones_like(whole), rtol=0, atol=1e-12)


def test_the_first_token_attends_to_nothing_unless_to_itself():
    given = operands(Case())
    out, remainder = stick_breaking_attention(**given)
    assert not out[:, :, 0].any()
    assert torch.equal(remainder[:, :, 0], torch.ones(2, 2, dtype=torch.float64))
    out, remainder = stick_breaking_attention(**given, attend_current=True)
    beta = (given["query"] * given["key"])[:, :, 0].sum(-1).div(2).sigmoid()
    torch.testing.assert_close(remainder[:, :, 0], 1 - beta, rtol=0, atol=1e-12)
    expected = beta[..., None] * given["value"][:, :, 0]
    torch.testing.assert_close(out[:, :, 0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [12.0, 25.0, 38.0])
def test_what_a_sure_break_leaves_is_not_lost(size):
    """1 − β is e⁻²⁵ at a logit of 25: small, and more than fp64's rounding."""
    ones = torch.ones(1, 1, 2, 1, dtype=torch.float64)
    weights, remainder = stick_breaking_attention(ones, ones, ones, scale=size)
    assert abs(remainder[0, 0, 1].item() / math.exp(-size) - 1) < 1e-5  # β e⁻ˢ, β ≈ 1
    assert abs(weights[0, 0, 1, 0].item() + remainder[0, 0, 1].item() - 1) < 1e-14


@pytest.mark.parametrize("size", [30.0, 300.0, 1e4])
def test_large_logits_break_the_stick_at_once(size):
    """β is 1 for the newest key, to rounding: it takes all, and nothing overflows."""
    given = operands(Case())
    ones = torch.full_like(given["query"], size**0.5)
    given |= {"query": ones, "key": ones}
    out, remainder = stick_breaking_attention(**given)
    torch.testing.assert_close(out[:, :, 1:], given["value"][:, :, :-1], rtol=0, atol=1e-10)
    assert (remainder[:, :, 1:] < 1e-10).all()


def test_no_token_at_all_is_no_error():
    out, remainder = stick_breaking_attention(*(torch.randn(2, 3, 0, 4) for _ in range(3)))
    assert out.shape == (2, 3, 0, 4)
    assert remainder.shape == (2, 3, 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_remainder_is_in_the_precision_of_sums(dtype):
    out, remainder = stick_breaking_attention(
        *(torch.randn(1, 1, 3, 4).to(dtype) for _ in range(3))
    )
    assert out.dtype == dtype
    assert remainder.dtype == torch.float32
