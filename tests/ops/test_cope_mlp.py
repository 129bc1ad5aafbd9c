"""CoPE with a network against its equation."""

import pytest
import torch

from milepost.ops import cope_mlp_attention

from . import equations
from .cases import Case, check, every_case, like_keys, network, operands


@every_case
@pytest.mark.parametrize("max_position", [None, 1.7], ids=["no limit", "limited"])
def test_it_is_its_equation(case, max_position):
    given = operands(case) | network(case) | {"max_position": max_position}
    check(cope_mlp_attention, equations.cope_mlp, given)


@every_case
def test_gate_keys_open_the_gates(case):
    given = operands(case) | network(case, hidden=2) | {"gate_keys": like_keys(case)}
    check(cope_mlp_attention, equations.cope_mlp, given)


@pytest.mark.parametrize(
    "scales", [{"scale": 1.0}, {"gate_scale": 0.2}, {"gate_scale": 0.0}], ids=str
)
def test_each_scale_is_its_own(scales):
    given = operands(Case(H=4, G=2)) | network(Case()) | scales
    check(cope_mlp_attention, equations.cope_mlp, given)


def test_no_hidden_unit_is_no_position():
    given = operands(Case())
    none = network(Case(), hidden=0)
    out = cope_mlp_attention(**given, **none)
    torch.testing.assert_close(out, equations.softmax(**given), rtol=0, atol=1e-12)
