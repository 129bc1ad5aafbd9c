"""What `skip` leaves out adds nothing, and is left out: NaN in it does not come through."""

import pytest

from milepost.ops import triton

from ..cases import Case, assert_equal_up_to, gradients, parts
from ..exact import GRADIENT, OUTPUT
from ..gates import GATES, LEFT_OUT
from .exact import kernels

pytestmark = pytest.mark.skipif(triton.missing() is not None, reason=str(triton.missing()))

CASES = {
    "S<T": Case(B=1, H=1, G=1, S=20, T=70, D=8, V=8),
    "decoding": Case(B=1, H=1, G=1, S=1, T=90, D=8, V=8),
    "no key": Case("no key", B=1, H=1, G=1, S=20, T=50, D=8, V=8),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize(("make", "gate"), GATES.values(), ids=GATES)
def test_it_changes_nothing_but_rounding(make, gate, case):
    call, given = make(case, gate)

    def close(one, other, relative, floor):
        return (one - other).norm() <= relative * other.norm() + floor

    short, whole = (parts(kernels(call, skip=skip)(**given)) for skip in (True, False))
    assert close(short[0], whole[0], OUTPUT, 0)
    for one, other in zip(short[1:], whole[1:], strict=True):
        assert_equal_up_to(2**-24, one, other)
    found, expected = (gradients(kernels(call, skip=skip), given) for skip in (True, False))
    largest = max(gradient.norm() for gradient in expected.values())
    for name, gradient in expected.items():
        # A gate that is shut or open for good has a gradient of 0, but for rounding
        assert close(found[name], gradient, GRADIENT, 2**-24 * largest), name


@pytest.mark.parametrize("S", [1, 20])
@pytest.mark.parametrize(("make", "gate", "name"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_what_is_left_out_is_not_read(make, gate, name, S):
    """Tiles that no query needs, once a few newer ones are seen."""
    case = Case(B=1, H=1, G=1, S=S, T=200, D=8, V=8)
    call, given = make(case, gate)
    given[name][:, :, :64] = float("nan")
    for part in parts(kernels(call, skip=True)(**given)):
        assert part.isfinite().all()
    assert parts(kernels(call, skip=False)(**given))[0].isnan().any()
    for operand, gradient in gradients(kernels(call, skip=True), given).items():
        assert gradient.isfinite().all(), operand
