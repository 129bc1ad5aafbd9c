"""xPos, against complex numbers in a loop, and its range."""

import cmath

import pytest
import torch
from torch import Tensor

from milepost.encoding import Host, Positions
from milepost.encodings.xpos import Xpos, zeta
from milepost.errors import UsageError

HOST = Host(dim=16, layers=2, heads=1, key_heads=1, head_dim=8, max_length=64)


def logits(encoding: Xpos, query: Tensor, key: Tensor, index: Tensor) -> Tensor:
    positions = Positions(index, first=int(index[0]), length=len(index))
    x = query.new_zeros(1, len(index), 16)
    _, state = encoding.begin(x, positions)
    operands = encoding.encode(query, key, key, x=x, positions=positions, state=state)
    return operands.query @ operands.memory["key"].mT


def test_it_is_the_papers_form() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 1, 12, 8, dtype=torch.float64)
    got = logits(Xpos(HOST, scale_base=16.0), query, key, torch.arange(30, 42))
    for n in range(12):
        for m in range(n + 1):
            total = 0.0
            for f in range(4):
                turned = cmath.exp(1j * (n - m) * 10_000 ** (-2 * f / 8))
                decay = ((f / 4 + 0.4) / 1.4) ** ((n - m) / 16)
                q = complex(query[0, 0, n, f], query[0, 0, n, f + 4])
                k = complex(key[0, 0, m, f], key[0, 0, m, f + 4])
                total += decay * (q * k.conjugate() * turned).real
            assert got[0, 0, n, m].item() == pytest.approx(total, abs=1e-12)


def test_zeta_rises_from_the_fastest_pair_to_below_one() -> None:
    assert zeta(8, 0.4).tolist() == pytest.approx([0.4 / 1.4, 0.65 / 1.4, 0.9 / 1.4, 1.15 / 1.4])


def test_the_ends_of_the_range_are_as_precise_as_its_middle() -> None:
    torch.manual_seed(0)
    encoding = Xpos(Host(16, 2, 1, 1, 8, max_length=36_000))
    query, key = torch.randn(2, 1, 1, 4, 8)
    middle = logits(encoding, query, key, torch.arange(18_000, 18_004))
    for begin in (0, 35_990):
        positions = Positions(torch.arange(begin, begin + 4), first=begin, length=4)
        for scaled in encoding.begin(torch.zeros(1, 4, 16), positions)[1]:
            assert all(part.abs().max() < torch.finfo(torch.float32).max ** 0.5 for part in scaled)
        end = logits(encoding, query, key, torch.arange(begin, begin + 4))
        torch.testing.assert_close(end, middle, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [
        (torch.float16, 2000, 2500),
        (torch.bfloat16, 18_000, 18_500),
        (torch.float32, 18_000, 18_500),
    ],
)
def test_the_docstring_states_the_reach(dtype: torch.dtype, least: int, most: int) -> None:
    assert least < Xpos(HOST).reach(dtype) < most


def test_longer_text_is_refused() -> None:
    encoding = Xpos(HOST)
    query = torch.zeros(1, 1, 2, 8)
    last = 32 + encoding.reach(torch.float32)
    assert logits(encoding, query, query, torch.arange(last - 1, last + 1)).isfinite().all()
    with pytest.raises(UsageError, match=r"torch\.float32 holds that for .* raise scale_base"):
        logits(encoding, query, query, torch.arange(last, last + 2))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gamma": 0.0}, "gamma must be above 0, got 0.0"),
        ({"scale_base": -512.0}, "scale_base must be above 0, got -512.0"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, float], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Xpos(HOST, **options)
