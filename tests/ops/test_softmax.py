"""Plain attention against its equation."""

import pytest
import torch
from jaxtyping import TypeCheckError

from milepost.ops import softmax_attention
from milepost.ops.reference import softmax

from . import equations
from .cases import Case, check, every_case, operands


@every_case
def test_it_is_its_equation(case):
    check(softmax_attention, equations.softmax, operands(case))


@pytest.mark.parametrize("scale", [0.37, 0.0, -1.0])
def test_scale_takes_the_place_of_one_over_root_d(scale):
    given = operands(Case(H=4, G=2, D=9)) | {"scale": scale}
    check(softmax_attention, equations.softmax, given)


def test_without_a_scale_it_is_one_over_root_d():
    given = operands(Case(D=9))
    unscaled = softmax_attention(given["query"], given["key"], given["value"])
    by_root = softmax_attention(given["query"], given["key"], given["value"], scale=1 / 3)
    assert torch.equal(unscaled, by_root)


def test_large_logits_do_not_overflow():
    given = operands(Case())
    given["query"] = given["query"] * 1e4
    out = softmax_attention(**given)
    best = given["query"] @ given["key"].mT
    later = torch.ones(6, 6, dtype=torch.bool).triu(1)
    hardest = best.masked_fill(later, float("-inf")).argmax(-1)
    chosen = given["value"].gather(2, hardest[..., None].expand_as(out))
    torch.testing.assert_close(out, chosen, rtol=0, atol=1e-6)


def test_the_annotations_of_the_reference_are_checked_here():
    query = torch.randn(1, 2, 3, 4)
    with pytest.raises(TypeCheckError):
        softmax.attend(query, query, torch.randn(1, 2, 5, 4), None, None)
