"""ALiBi: the published slopes, and the bias that they make."""

import pytest
import torch

from milepost.encoding import Host, Positions
from milepost.encodings.alibi import Alibi, slopes

EIGHT = [2.0**-h for h in range(1, 9)]


def authors_rule(heads: int) -> list[float]:
    """The released recursion, in words: fill up from twice as many heads, every other one."""
    if heads & (heads - 1) == 0:
        first = 2 ** (-8 / heads)
        return [first ** (h + 1) for h in range(heads)]
    power = 2 ** (len(bin(heads)) - 3)
    return authors_rule(power) + authors_rule(2 * power)[::2][: heads - power]


@pytest.mark.parametrize(
    ("heads", "published"),
    [
        (1, [2.0**-8]),
        (4, [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8]),
        (8, EIGHT),
        (12, [*EIGHT, 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]),
        (16, [2 ** (-h / 2) for h in range(1, 17)]),
    ],
)
def test_the_slopes_are_the_published_ones(heads: int, published: list[float]) -> None:
    assert slopes(heads) == pytest.approx(published, rel=1e-14)


@pytest.mark.parametrize("heads", range(1, 34))
def test_any_number_of_heads_follows_the_authors_rule(heads: int) -> None:
    assert slopes(heads) == pytest.approx(authors_rule(heads), rel=1e-12)


@pytest.mark.parametrize(
    ("given", "made"), [(torch.float64, torch.float64), (torch.bfloat16, torch.float32)]
)
def test_the_bias_falls_linearly_over_all_distances(given: torch.dtype, made: torch.dtype) -> None:
    encoding = Alibi(Host(dim=12, layers=1, heads=3, key_heads=1, head_dim=4, max_length=4))
    positions = Positions(torch.arange(5, 7), first=5, length=2)
    _, bias = encoding.begin(torch.zeros(1, 2, 12, dtype=given), positions)
    expected = [[-m * d for d in range(7)] for m in (2.0**-4, 2.0**-8, 2.0**-2)]
    assert bias.dtype == made
    assert torch.equal(bias, torch.tensor(expected, dtype=made))
    query, key = torch.zeros(1, 3, 2, 4), torch.zeros(1, 1, 2, 4)
    x = torch.zeros(1, 2, 12)
    operands = encoding.encode(query, key, key, x=x, positions=positions, state=bias)
    assert operands.params == {"bias": bias}
