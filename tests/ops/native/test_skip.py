"""What `skip` leaves out adds nothing, and is left out: NaN in it does not come through."""

import pytest
import torch

from milepost import ops
from milepost.ops import native

from ..cases import Case, assert_equal_up_to, cast, gradients, operands, parts
from ..exact import GRADIENT, OUTPUT, SINGLE
from ..gates import GATES, LEFT_OUT, single, stick_breaking
from .exact import instruction_sets

pytestmark = [
    pytest.mark.skipif(native.isa() is None, reason=str(native.missing())),
    pytest.mark.usefixtures("poisoned"),
]

CASE = Case(H=4, G=2, S=200, T=300, D=8, V=8)
CASES = {
    "S<T": CASE,
    "grouped, decoding": Case(H=4, G=2, S=1, T=300, D=8, V=8),
    "documents": Case("packed", S=200, T=300, D=8, V=8, span=130),
    "padding": Case("padding", S=150, T=300, D=8, V=8, span=140),
    "no key": Case("no key", S=150, T=300, D=8, V=8),
}


every_gate = pytest.mark.parametrize(("make", "gate"), GATES.values(), ids=GATES)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@every_gate
def test_it_changes_nothing_but_rounding(make, gate, case):
    call, given = make(case, gate)

    def native(skip):
        return lambda **given: call(**given, skip=skip, backend="native")

    def close(one, other, relative, floor):
        return (one - other).norm() <= relative * other.norm() + floor

    for isa in instruction_sets():
        short, whole = parts(native(True)(**given)), parts(native(False)(**given))
        assert close(short[0], whole[0], OUTPUT, 0), isa
        for one, other in zip(short[1:], whole[1:], strict=True):
            assert_equal_up_to(2**-24, one, other)
        found, expected = gradients(native(True), given), gradients(native(False), given)
        largest = max(gradient.norm() for gradient in expected.values())
        for name, gradient in expected.items():
            # A gate that is shut or open for good has a gradient of 0, but for rounding
            assert close(found[name], gradient, GRADIENT, 2**-24 * largest), (isa, name)


FAR = slice(0, 100)  # keys of whole tiles that no query needs, once a few newer ones are seen


@pytest.mark.parametrize("S", [1, 20, 100])
@pytest.mark.parametrize(("make", "gate", "name"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_what_is_left_out_is_not_read(make, gate, name, S):
    case = Case(H=4, G=2, S=S, T=300, D=8, V=8)
    call, given = make(case, gate)
    given[name][:, :, FAR] = float("nan")

    def native(skip):
        return lambda **given: call(**given, skip=skip, backend="native")

    for isa in instruction_sets():
        for part in parts(native(True)(**given)):
            assert part.isfinite().all(), isa
        assert parts(native(False)(**given))[0].isnan().any(), isa
        for operand, gradient in gradients(native(True), given).items():
            assert gradient.isfinite().all(), (isa, operand)


@pytest.mark.parametrize("skip", [True, False])
def test_a_query_that_still_needs_its_keys_keeps_them_for_itself(skip):
    """One head of those that share keys forgets at once, another never does."""
    case = Case(H=2, G=1, S=40, T=300, D=8, V=8)
    given = single(operands(case))
    log_f = torch.zeros(case.B, case.H, case.T)
    log_f[:, 0] = -50
    found = ops.forgetting_attention(**given, log_f=log_f, skip=skip, backend="native")
    plain = ops.softmax_attention(**given, backend="native")
    torch.testing.assert_close(found[:, 1], plain[:, 1], rtol=0, atol=1e-6)
    own = given["value"][:, 0, -case.S :]
    torch.testing.assert_close(found[:, 0], own, rtol=0, atol=1e-6)


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("logit", [-5.0, 0.0, 2.0, 5.0])
@pytest.mark.parametrize("S", [1, 100])
def test_gradients_of_sure_breaks_are_as_exact_as_the_references(S, logit, skip):
    """In twice its error in fp32, and T roundings of the largest: tests/ops/test_precision.py."""
    call, given = stick_breaking(Case(H=4, G=2, S=S, T=300, D=8, V=8), logit)

    def on(backend):
        return lambda **given: call(**given, skip=skip, backend=backend)

    exact = gradients(on("reference"), cast(given, torch.float64))
    yardstick = gradients(on("reference"), given)
    for isa in instruction_sets():
        for name, gradient in gradients(on("native"), given).items():
            error, other = ((x - exact[name]).abs().max() for x in (gradient, yardstick[name]))
            band = 300 * SINGLE * exact[name].abs().max()
            assert error <= 2 * other + band, (isa, name)
