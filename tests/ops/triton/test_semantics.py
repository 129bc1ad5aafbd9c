"""What the ops promise of unusual operands."""

import pytest
import torch

from milepost.errors import UsageError
from milepost.ops import triton
from milepost.ops.triton import _scan

from ..cases import Case, cast, cotangents
from ..exact import FUSED, single
from ..fused import every_fused_op
from ..semantics import Semantics, assert_near
from .exact import found, kernels

pytestmark = pytest.mark.skipif(triton.missing() is not None, reason=str(triton.missing()))


class TestSemantics(Semantics):
    """Cases are small, as the interpreter is slow."""

    backend = "triton"
    packed = Case("packed", B=2, H=2, G=1, S=20, T=40, D=8, V=12, span=30)
    short = Case("packed", H=2, G=1, S=6, T=20, D=8, V=12, span=16)
    long = Case(B=1, S=40, T=60, D=8, V=12)
    lasts = (1, 3, 17)
    later = (31, 56)
    # PyTorch's products of queries and tables depend on how they lie
    same_bits = False
    some = (
        "bias table",
        "bias dense",
        "relative",
        "cope with everything",
        "forgetting",
        "stick_breaking",
    )
    kernels = staticmethod(kernels)
    found = staticmethod(found)


def test_a_logit_above_the_highest_that_the_forward_saw_weighs_no_more(monkeypatch):
    """As if the forward had summed its products in an order that gives less, by far."""
    from milepost.ops.triton import _launch

    forward, inverse = _launch.forward, []

    def lower(given, out, residual):
        forward(given, out, residual)
        residual[0] -= 300
        inverse.append(residual[1].cpu().double())

    monkeypatch.setattr(_launch, "forward", lower)
    given = single(FUSED["softmax"], Case(B=1, S=20, T=20, D=8, V=8))
    results, slopes = found(FUSED["softmax"], given)
    (grad,) = cotangents(results)
    weights = inverse[0][..., None] * torch.ones(20, 20).tril()
    assert_near(slopes["value"], weights.mT @ grad, 1e-6)


@every_fused_op
def test_wide_heads_are_refused(op):
    wide = cast(op.operands(Case(D=257)), torch.float32)
    with pytest.raises(UsageError, match=r"^triton refused: takes head_dim up to .* got 257"):
        kernels(op.call)(**wide)


def test_what_would_spill_is_refused(monkeypatch):
    """Of registers, which the interpreter does not have."""
    op = FUSED["cope with everything"]
    monkeypatch.setattr(triton, "interpreted", lambda: False)

    def refusal(D, dtype):
        return _scan.refusal(**cast(op.operands(Case(D=D)), dtype))

    assert refusal(256, torch.bfloat16) is refusal(128, torch.float32) is None
    assert refusal(256, torch.float32) == (
        "takes relative_table beside gate_keys up to head_dim 128 in float32, got 256"
    )
