"""What the ops promise of unusual operands, of every instruction set's kernels."""

from functools import partial

import pytest
import torch

from milepost.errors import UsageError
from milepost.ops import native

from ..cases import Case, assert_equal_up_to, cast, gradients, parts
from ..exact import on
from ..fused import every_fused_op
from ..semantics import EMPTY, Semantics
from .exact import instruction_sets

pytestmark = [
    pytest.mark.skipif(native.isa() is None, reason=str(native.missing())),
    pytest.mark.usefixtures("poisoned"),
]


class TestSemantics(Semantics):
    backend = "native"
    packed = short = Case("packed", H=4, G=2, S=100, T=140, D=8, V=12, span=90)
    long = Case(S=100, T=140, D=8, V=12)
    starts = ("packed", None)
    lasts = (1, 3, 64, 65)
    later = (65, 100, 128)
    same_bits = True
    instruction_sets = staticmethod(instruction_sets)

    @staticmethod
    def kernels(function):
        return partial(function, backend="native")

    @staticmethod
    def found(op, given):
        """The results of a call that keeps nothing for gradients, and the gradients."""
        return parts(on("native", op)(**given)), gradients(on("native", op), given)


REFUSED = {
    **{name: (case, torch.float32) for name, case in EMPTY.items()},
    "fp64": (Case(), torch.float64),
}


@pytest.mark.parametrize(("case", "dtype"), REFUSED.values(), ids=REFUSED)
@every_fused_op
def test_what_is_refused_falls_back(op, case, dtype):
    given = cast(op.operands(case), dtype)
    with pytest.raises(UsageError, match=r"^native refused: "):
        on("native", op)(**given)
    assert_equal_up_to(0, op.call(**given), on("reference", op)(**given))
