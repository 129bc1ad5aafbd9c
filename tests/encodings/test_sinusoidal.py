"""Sinusoidal positions, against the paper's two equations written as loops."""

import math

import pytest
import torch

from milepost.encoding import Host, Positions
from milepost.encodings.sinusoidal import Sinusoidal, sinusoids
from milepost.errors import UsageError

HOST = Host(dim=8, layers=2, heads=2, key_heads=1, head_dim=4, max_length=6)


def written_out(place: int, dim: int, base: float) -> list[float]:
    values = [0.0] * dim
    for i in range(dim // 2):
        values[2 * i] = math.sin(place / base ** (2 * i / dim))
        values[2 * i + 1] = math.cos(place / base ** (2 * i / dim))
    return values


@pytest.mark.parametrize("base", [10_000.0, 100.0])
def test_it_is_the_papers_equation(base: float) -> None:
    index = torch.tensor([[0, 1, 2], [7, 1000, 123_456]])
    expected = [[written_out(int(n), 8, base) for n in row] for row in index]
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(sinusoids(index, 8, base), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("given", "factor"), [(None, math.sqrt(8)), (1.0, 1.0), (0.5, 0.5)])
def test_the_embedding_is_scaled_first(given: float | None, factor: float) -> None:
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    positions = Positions(torch.arange(5, 8), first=5, length=3)
    added, _ = Sinusoidal(HOST, embedding_scale=given).begin(x, positions)
    waves = torch.tensor([written_out(n, 8, 10_000.0) for n in (5, 6, 7)], dtype=torch.float64)
    torch.testing.assert_close(added, factor * x + waves, rtol=0, atol=1e-12)


def test_far_positions_are_exact_in_low_precision() -> None:
    positions = Positions(torch.tensor([1_000_000, 1_000_001]), first=1_000_000, length=2)
    added, _ = Sinusoidal(HOST).begin(torch.zeros(1, 2, 8, dtype=torch.bfloat16), positions)
    exact = torch.tensor([written_out(n, 8, 10_000.0) for n in (1_000_000, 1_000_001)])
    torch.testing.assert_close(added[0], exact.bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("dim", "options", "said"),
    [
        (7, {}, "dim must be even, got 7"),
        (8, {"base": 0}, "base must be above 0, got 0"),
        (8, {"embedding_scale": -1.0}, "embedding_scale must be above 0, or None"),
    ],
)
def test_a_bad_option_is_named(dim: int, options: dict[str, float], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Sinusoidal(Host(dim, 1, 1, 1, 4, 6), **options)
