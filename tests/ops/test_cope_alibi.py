"""CoPE with slopes against its equation."""

import pytest
import torch

from milepost.ops import cope_alibi_attention

from . import equations
from .cases import Case, check, every_case, like_keys, operands


@every_case
@pytest.mark.parametrize("separate", [False, True], ids=["keys", "gate keys"])
def test_it_is_its_equation(case, separate):
    given = operands(case) | {"slopes": torch.randn(case.H, dtype=torch.float64)}
    if separate:
        given["gate_keys"] = like_keys(case)
    check(cope_alibi_attention, equations.cope_alibi, given)


@pytest.mark.parametrize(
    "scales", [{"scale": 1.0}, {"gate_scale": 0.2}, {"gate_scale": 0.0}], ids=str
)
def test_each_scale_is_its_own(scales):
    given = operands(Case(H=4, G=2)) | {"slopes": torch.randn(4, dtype=torch.float64)} | scales
    check(cope_alibi_attention, equations.cope_alibi, given)


def test_a_negative_slope_favours_the_recent():
    given = operands(Case(B=1, H=1, G=1))
    given |= {"key": torch.zeros_like(given["key"]), "value": torch.eye(6).double()[None, None]}
    weights = cope_alibi_attention(**given, slopes=torch.tensor([-1.0]))[0, 0, -1]
    assert (weights.diff() > 0).all()
