"""KERPLE's two kernels, and the bounds of their parameters."""

import math

import pytest
import torch

from milepost.encoding import Host, Positions
from milepost.encodings.kerple import Kerple, within
from milepost.errors import UsageError

HOST = Host(dim=16, layers=3, heads=4, key_heads=2, head_dim=4, max_length=8)


def bias_of(encoding: Kerple, end: int = 9) -> torch.Tensor:
    positions = Positions(torch.arange(end), first=0, length=end)
    return encoding.begin(torch.zeros(1, end, 16, dtype=torch.float64), positions)[1]


@pytest.mark.parametrize("variant", ["log", "power"])
def test_the_bias_is_the_kernel(variant: str) -> None:
    torch.manual_seed(0)
    encoding = Kerple(HOST, variant=variant).double()
    bias = bias_of(encoding)
    assert bias.shape == (4, 9)
    for h in range(4):
        r1, r2 = encoding.r1[h].item(), encoding.r2[h].item()
        for d in range(9):
            kernel = math.log(1 + r2 * d) if variant == "log" else d**r2
            assert bias[h, d].item() == pytest.approx(-r1 * kernel, abs=1e-12)
    assert (bias[:, 0] == 0).all()
    assert (bias.diff(dim=1) < 0).all()


@pytest.mark.parametrize(("variant", "above"), [("log", (2.0, 1.0)), ("power", (1.0, 2.0))])
def test_parameters_start_uniformly(variant: str, above: tuple[float, float]) -> None:
    torch.manual_seed(0)
    encoding = Kerple(Host(16, 1, 4000, 1, 4, 8), variant=variant)
    for parameter, top in zip((encoding.r1, encoding.r2), above, strict=True):
        assert 0 <= parameter.min() < 0.01 * top
        assert 0.99 * top < parameter.max() <= top
        assert abs(parameter.mean().item() / top - 0.5) < 0.03


def test_a_parameter_out_of_bounds_is_held_and_can_come_back() -> None:
    parameter = torch.tensor([-1.0, 0.5, 3.0], requires_grad=True)
    held = within(parameter, 2.0)
    assert held.tolist() == pytest.approx([0.01, 0.5, 2.0])
    held.sum().backward()
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [1, 1, 1]


@pytest.mark.parametrize("variant", ["log", "power"])
def test_the_bias_never_rises_whatever_the_parameters(variant: str) -> None:
    encoding = Kerple(HOST, variant=variant).double()
    with torch.no_grad():
        encoding.r1.fill_(-5.0)
        encoding.r2.copy_(torch.tensor([-1.0, 0.0, 1.0, 50.0]))
    bias = bias_of(encoding)
    assert (bias.diff(dim=1) < 0).all()
    if variant == "power":
        torch.testing.assert_close(bias[3], -0.01 * torch.arange(9.0).double() ** 2)


def test_gradients_are_finite_at_distance_zero() -> None:
    encoding = Kerple(HOST, variant="power").double()
    bias_of(encoding).sum().backward()
    for parameter in (encoding.r1, encoding.r2):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert (parameter.grad != 0).all()


def test_an_unknown_variant_is_named() -> None:
    with pytest.raises(UsageError, match="unknown variant 'logarithm'"):
        Kerple(HOST, variant="logarithm")
