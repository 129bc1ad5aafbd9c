"""The kernels as operators of PyTorch, and the derivatives that they lack."""

import pytest
import torch
from torch.autograd import forward_ad

from milepost.errors import UsageError
from milepost.ops import triton
from milepost.ops.triton import _scan

from ..as_operators import AsOperators, of_query
from ..cases import Case
from ..exact import FUSED, single
from .exact import DEVICE, kernels

pytestmark = pytest.mark.skipif(triton.missing() is not None, reason=str(triton.missing()))


class TestAsOperators(AsOperators):
    backend = "triton"
    operator = "gpu_scan"
    scan = _scan
    case = Case("window", B=1, H=2, G=1, S=5, T=7, V=3)
    others = ()
    some = ("bias dense", "cope with everything", "stick_breaking")
    device = DEVICE
    kernels = staticmethod(kernels)

    @pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")
    def test_derivatives_that_they_lack_are_refused(self):
        op = FUSED["cope"]
        given = single(op, self.case)
        query, along = given["query"], torch.randn_like(given["query"])
        total = of_query(kernels(op.call), given)
        with (
            pytest.raises(UsageError, match="triton refused: has no forward-mode"),
            forward_ad.dual_level(),
        ):
            total(forward_ad.make_dual(query, along))
        once = torch.func.grad(total)
        with pytest.raises(UsageError, match="triton refused: has no second derivatives"):
            torch.func.grad(lambda x: once(x).square().sum())(query)
