"""The kernels on shapes and options that nobody chose."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.ops import native

from ..any_operands import cases, choices, may_skip, with_choices
from ..cases import cast, gradients, parts
from ..exact import FUSED, on, single
from .exact import check, poison

pytestmark = pytest.mark.skipif(native.isa() is None, reason=str(native.missing()))

every_native_op = pytest.mark.parametrize("name", FUSED)
some = settings(derandomize=True, max_examples=60, deadline=None, database=None)


@every_native_op
@some
@given(case=cases(longest=150), chosen=choices, skip=st.booleans())
def test_it_is_the_reference(name, case, chosen, skip):
    op = with_choices(name, chosen)
    options = {"skip": skip} if may_skip(name) else {}
    with poison():
        check(op, single(op, case), of_terms=True, **options)


@every_native_op
@settings(some, max_examples=15)
@given(
    case=cases(longest=150),
    chosen=choices,
    tokens=st.sampled_from([torch.bfloat16, torch.float16]),
    parameters=st.sampled_from([torch.bfloat16, torch.float16, torch.float32]),
)
def test_halves_are_read_as_they_are(name, case, chosen, tokens, parameters):
    """What halves give is what the same numbers in fp32 give, rounded."""
    op = with_choices(name, chosen)
    given = cast(single(op, case), parameters)
    names = ("query", "key", "value", "gate_keys", "position_query")
    given |= cast({name: given[name] for name in names if given.get(name) is not None}, tokens)
    call, wide = on("native", op), cast(given, torch.float32)

    def rounded(**given):
        out, *rest = parts(call(**given))
        return out.to(tokens), *rest

    with poison():
        for half, full in zip(parts(call(**given)), parts(rounded(**wide)), strict=True):
            assert torch.equal(half, full)
        found, of_wide = gradients(call, given), gradients(rounded, wide)
    for name, gradient in found.items():
        assert torch.equal(gradient, of_wide[name].to(given[name].dtype)), name
