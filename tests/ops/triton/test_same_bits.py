"""Two runs give the same, bit by bit; and nothing of one sequence reaches another."""

import pytest
import torch

from milepost.ops import triton

from ..cases import BATCHED, Case
from ..exact import FUSED, drawn
from .exact import found

pytestmark = pytest.mark.skipif(triton.missing() is not None, reason=str(triton.missing()))

CASE = Case("window", B=1, H=1, G=1, S=37, T=50, D=18, V=23, span=40)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("op", FUSED.values(), ids=FUSED)
def test_two_runs_give_the_same(op, dtype):
    given = drawn(op, CASE, dtype)
    (results, slopes), (again, slopes_again) = found(op, given), found(op, given)
    for one, other in zip(results, again, strict=True):
        assert torch.equal(one, other)
    for name, gradient in slopes.items():
        assert torch.equal(gradient, slopes_again[name]), name


@pytest.mark.parametrize("op", FUSED.values(), ids=FUSED)
def test_a_batch_gives_each_what_it_gives_alone(op):
    """But for the last bits of what PyTorch's products make of queries and tables before."""
    given = drawn(op, Case("padding", H=2, G=1, S=20, T=37, span=20), torch.float32)
    results, _ = found(op, given)
    alone, _ = found(op, {name: of_batch(name, x, 1) for name, x in given.items()})
    for one, other in zip(results, alone, strict=True):
        torch.testing.assert_close(one[1:], other, rtol=0, atol=1e-6)


def of_batch(name, operand, batch):
    batched = name in BATCHED or (name == "bias" and operand.ndim == 4)
    return operand[batch : batch + 1] if batched and operand is not None else operand
