"""Arrays come back from their bytes as close as the rules say."""

import base64
import zlib
from typing import Any

import pytest
import torch

from milepost.look import shown, trace
from milepost.look.pack import DISTANCE, SUMS, Code, codes, levels, packed, text_of

from .tiny import drawn, every_encoding, make
from .unpacked import counts, precision, unpacked


def some(kind: str, size: int) -> torch.Tensor:
    """Shares of a kind, in fp32 as a model makes them."""
    drawn = torch.rand(size, size)
    return {
        "even": drawn,
        "small": drawn**6,
        "extreme": torch.sigmoid(100 * (drawn - 0.5)),
        "halves": drawn.mul(3).floor() / 2,
        "none": drawn * 0,
        "all": drawn * 0 + 1,
    }[kind].tril()


KINDS = pytest.mark.parametrize("kind", ["even", "small", "extreme", "halves", "none", "all"])


@KINDS
@pytest.mark.parametrize("size", [1, 2, 40])
@pytest.mark.parametrize(
    "code", [Code("linear"), Code("counted"), Code("square"), Code("square", 63)]
)
def test_shares_come_back(kind: str, size: int, code: Code) -> None:
    array = some(kind, size)
    found = unpacked(packed(array, code), code.name, code.levels)
    apart = (found - array).abs()
    assert (apart <= precision(array.double(), code.name, code.levels)).all()


@pytest.mark.parametrize("size", [1, 2, 40])
def test_cosines_come_back(size: int) -> None:
    array = (2 * torch.rand(size, size) - 1).tril()
    array[-1, 0] = -1
    found = unpacked(packed(array, Code("cosine")), "cosine")
    assert ((found - array).abs().tril() <= precision(array, "cosine")).all()
    assert found[-1, 0] == -1


@KINDS
def test_the_sum_of_gates_is_the_count_however_long_the_text(kind: str) -> None:
    gates = some(kind, 300)
    found = counts(unpacked(packed(gates, Code("counted")), "counted"))
    expected = counts(gates.double()).tril()
    assert ((found - expected).abs() <= 1 / 510 + 1e-9).all()


def test_a_thousand_small_gates_add_up() -> None:
    gates = torch.full((1000, 1000), 0.001).tril()
    last = unpacked(packed(gates, Code("counted")), "counted")[-1]
    assert last.sum().item() == pytest.approx(1, abs=1 / 510)
    assert not unpacked(packed(gates, Code("linear")), "linear").any()


def test_a_gate_of_1_between_halves_is_not_0() -> None:
    gates = torch.tensor([[0, 0, 0, 0]] * 3 + [[1, 1, 0.5, 0]])
    assert levels(gates, Code("counted"))[-1].tolist() == [255, 255, 128, 0]


def test_the_least_weight_is_told_from_none() -> None:
    array = torch.tensor([[0, 0], [1 / 65025, 0]])
    assert levels(array, Code("square")).tolist() == [[0, 0], [1, 0]]
    assert levels(array, Code("linear")).tolist() == [[0, 0], [0, 0]]


def test_numbers_a_rounding_beyond_their_ends_are_those() -> None:
    array = torch.tensor([[1 + 1e-6, -1e-9], [-1 - 1e-6, 0]]).double()
    assert levels(array, Code("linear")).tolist() == [[255, 0], [0, 0]]
    assert levels(array, Code("cosine")).tolist()[0][0] == 255
    assert levels(array, Code("cosine")).tolist()[1][0] == 0


def test_pairs_stand_row_after_row() -> None:
    array = torch.tensor([[1.0, 0.5, 0.5], [0.2, 0.4, 0.5], [0.0, 0.6, 0.8]])
    read = zlib.decompress(base64.b64decode(packed(array, Code("linear"))))
    assert [*read] == [255, 51, 102, 0, 153, 204]


def test_many_heads_have_the_bytes_of_each() -> None:
    arrays = torch.rand(3, 9, 9).tril()
    for code in (Code("counted"), Code("square"), Code("linear"), Code("cosine")):
        assert torch.equal(levels(arrays, code), torch.stack([levels(a, code) for a in arrays]))


def test_text_is_of_letters_that_html_leaves_alone() -> None:
    text = text_of(torch.randint(256, (4, 500), dtype=torch.uint8))
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")


@every_encoding
def test_every_array_has_a_code_that_can_hold_it(name: str, options: dict[str, Any]) -> None:
    for arrays in shown(trace(make(name, options), drawn())):
        found = codes(arrays)
        assert found.keys() == arrays.keys()
        assert found["attention"] == Code("square")
        assert found.get("alone") in (None, Code("square", 63))
        counting = arrays["positions"].unit == "count"
        assert found.get("gates") in (None, Code("counted" if counting else "linear"))
        assert (found["positions"] is SUMS) == (counting and "gates" in arrays)
        assert (found["positions"] is DISTANCE) == (arrays["positions"].unit == "tokens")
        assert (found["positions"] == Code("cosine")) == (arrays["positions"].unit == "cosine")
