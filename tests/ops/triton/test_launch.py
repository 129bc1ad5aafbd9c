"""What kernels are compiled for."""

import pytest
import torch

from milepost.ops import triton
from milepost.ops.inputs import Inputs
from milepost.ops.triton._blocks import Blocks

pytestmark = pytest.mark.skipif(triton.missing() is not None, reason=str(triton.missing()))

BLOCKS = Blocks(64, 32, warps=4, stages=2)


def given(kind="softmax", D=64, V=48):
    query, value = torch.empty(1, 1, 2, D), torch.empty(1, 1, 2, V)
    return Inputs(kind, query, query, value, None, scale=1.0)


def test_constants_are_numbers_that_print_as_they_are():
    """Triton finds what it compiled by how they print, and functions by their source."""
    from milepost.ops.triton import _launch

    const = _launch.constants(given(), BLOCKS)
    assert {type(field.value) for field in const} == {bool, int, str}
    widths = (const.D, const.BLOCK_D, const.V, const.BLOCK_V)
    assert [width.value for width in widths] == [64, 64, 48, 64]
    for policy in _launch.POLICIES.values():
        assert all(hasattr(function, "fn") for function in policy), "of triton.jit"


def test_kernels_that_meet_no_values_are_shared_by_ops_and_widths_of_values():
    from milepost.ops.triton import _launch

    one, other = (
        _launch.without_values(given(kind, V=V), BLOCKS)
        for kind, V in (("cope", 48), ("cope_alibi", 80))
    )
    assert str(one) == str(other)
