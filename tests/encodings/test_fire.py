"""FIRE, against its equation written as loops."""

import math
from typing import Any

import pytest
import torch

from milepost.encoding import Host, Positions
from milepost.encodings.fire import Fire, progress
from milepost.errors import UsageError

HOST = Host(dim=16, layers=3, heads=4, key_heads=2, head_dim=4, max_length=8)


def psi(x: float, c: float) -> float:
    return math.log(c * x + 1)


def written_out(encoding: Fire, i: int, j: int, place: int) -> list[float]:
    """f_θ of every head for query column i, which is token `place` of its document, and key j."""
    c = abs(encoding.c.item())
    threshold = abs(encoding.threshold * encoding.threshold_factor.item())
    share = psi(i - j, c) / (psi(max(threshold, place), c) + 1e-6)
    hidden = [
        max(0.0, w * share + b)
        for w, b in zip(
            encoding.inner.weight[:, 0].tolist(), encoding.inner.bias.tolist(), strict=True
        )
    ]
    return [
        sum(w * unit for w, unit in zip(row, hidden, strict=True))
        for row in encoding.outer.weight.tolist()
    ]


@pytest.mark.parametrize("c", [0.1, -0.7])
@pytest.mark.parametrize("first", [0, 4])
def test_the_bias_is_the_papers_equation(first: int, c: float) -> None:
    torch.manual_seed(0)
    encoding = Fire(HOST, threshold=3.0, hidden=5).double()
    with torch.no_grad():
        encoding.c.fill_(c)
    positions = Positions(torch.arange(first, first + 5), first=first, length=5)
    bias = encoding.bias(positions, torch.float64)
    assert bias.shape == (1, 4, 5, first + 5)
    for s in range(5):
        for j in range(first + s + 1):
            expected = written_out(encoding, first + s, j, first + s)
            assert bias[0, :, s, j].tolist() == pytest.approx(expected, abs=1e-12)


def test_the_position_is_that_in_the_document() -> None:
    torch.manual_seed(0)
    encoding = Fire(HOST, threshold=1.0).double()
    index = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 0, 1, 2]])
    bias = encoding.bias(Positions(index, first=0, length=5), torch.float64)
    assert bias.shape == (2, 4, 5, 5)
    for row, i, j in ((0, 4, 2), (1, 4, 2), (1, 1, 0)):
        expected = written_out(encoding, i, j, int(index[row, i]))
        assert bias[row, :, i, j].tolist() == pytest.approx(expected, abs=1e-12)
    assert not torch.allclose(bias[0, :, 4, 2], bias[1, :, 4, 2])


def test_progress_runs_from_zero_to_one_whatever_the_length() -> None:
    c, threshold = torch.tensor(0.1).double(), torch.tensor(50.0).double()
    for place in (50, 1000, 100_000):
        distance = torch.arange(place + 1).double()[None]
        share = progress(distance, torch.tensor([place]).double(), c, threshold)[0]
        assert share[0] == 0
        assert share[-1].item() == pytest.approx(1, abs=1e-5)
        assert (share.diff() > 0).all()
    early = progress(torch.tensor([[3.0]]).double(), torch.tensor([3.0]).double(), c, threshold)
    assert early.item() == pytest.approx(psi(3, 0.1) / psi(50, 0.1), abs=1e-5)


def test_neighbours_far_away_differ_even_in_bf16() -> None:
    torch.manual_seed(0)
    encoding = Fire(HOST).bfloat16()
    positions = Positions(torch.tensor([3000]), first=3000, length=1)
    x, query, key = torch.zeros(1, 1, 16), torch.zeros(1, 4, 1, 4), torch.zeros(1, 2, 1, 4)
    with torch.autocast("cpu", torch.bfloat16):
        operands = encoding.encode(query.bfloat16(), key, key, x=x, positions=positions, state=None)
    bias = operands.params["bias"]
    assert bias.dtype == torch.float32
    assert bias.isfinite().all()
    assert (bias.diff(dim=-1).abs().amax(1) > 0).all()


def test_layers_have_their_own_function_unless_shared() -> None:
    assert len(set(map(id, Fire.stack(HOST)))) == 3
    shared = Fire.stack(HOST, shared=True)
    assert len(set(map(id, shared))) == 1
    x, positions = torch.zeros(1, 5, 16), Positions(torch.arange(5), first=0, length=5)
    state = shared[0].begin(x, positions)[1]
    query, key = torch.zeros(1, 4, 5, 4), torch.zeros(1, 2, 5, 4)
    operands = shared[0].encode(query, key, key, x=x, positions=positions, state=state)
    assert operands.params["bias"] is state
    assert Fire(HOST).begin(x, positions)[1] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hidden": 0}, "hidden must be a whole number above 0, got 0"),
        ({"threshold": 0.0}, "threshold must be above 0, got 0.0"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Fire(HOST, **options)
