"""The kernels on shapes and options that nobody chose."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.ops import triton

from ..any_operands import cases, choices, may_skip, with_choices
from ..exact import FUSED, drawn
from .exact import check

pytestmark = pytest.mark.skipif(triton.missing() is not None, reason=str(triton.missing()))


@pytest.mark.parametrize("name", FUSED)
@settings(derandomize=True, max_examples=4, deadline=None, database=None)
@given(
    case=cases(longest=40),
    chosen=choices,
    skip=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
def test_it_is_the_reference(name, case, chosen, skip, dtype):
    op = with_choices(name, chosen)
    options = {"skip": skip} if may_skip(name) else {}
    check(op, drawn(op, case, dtype), of_terms=True, **options)
