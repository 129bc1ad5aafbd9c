"""The kernels as operators of PyTorch, what it compiles around them, and when `auto` calls them."""

import shutil
from functools import partial

import pytest
import torch

from milepost.ops import native
from milepost.ops.native import _scan

from ..as_operators import AsOperators
from ..cases import Case, cast, gradients
from ..exact import FUSED, on, single
from ..fused import every_fused_op

pytestmark = pytest.mark.skipif(native.isa() is None, reason=str(native.missing()))


class TestAsOperators(AsOperators):
    backend = "native"
    operator = "scan"
    scan = _scan
    case = Case("window", H=4, G=2, S=5, T=7, V=3)
    others = (Case(H=2, G=1, S=9, T=9),)

    @staticmethod
    def kernels(function):
        return partial(function, backend="native")

    @pytest.mark.skipif(
        shutil.which("g++") is None or hasattr(native._kernels, "overrun"),
        reason="inductor needs a compiler, and its code does not load beside a sanitizer",
    )
    @pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
    def test_inductor_compiles_what_is_around_it(self):
        op = FUSED["forgetting"]
        given = single(op, self.case)

        def call(**given):
            return 2 * on("native", op)(**given | {"log_f": -given["log_f"].square()})

        compiled = torch.compile(call, fullgraph=True)
        found, expected = gradients(compiled, given), gradients(call, given)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)

    @every_fused_op
    def test_auto_is_the_kernels(self, op, seen):
        given = single(op, self.case)
        op.call(**given)
        assert len(seen) == 1
        op.call(**given, backend="reference")
        op.call(**cast(given, torch.float64))
        assert len(seen) == 1
