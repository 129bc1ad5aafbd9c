"""Randomised positions: the draw, when it is made, and what gets it."""

from collections import Counter
from typing import Any

import pytest
import torch

from milepost.encoding import Encoding, Host, Positions
from milepost.encodings.absolute import Absolute
from milepost.encodings.randomized import Randomized, draw
from milepost.encodings.rope import Rope
from milepost.encodings.sinusoidal import Sinusoidal
from milepost.errors import UsageError

HOST = Host(dim=8, layers=2, heads=2, key_heads=1, head_dim=4, max_length=10)


def positions(length: int, first: int = 0) -> Positions:
    return Positions(torch.arange(first, first + length), first=first, length=length)


@pytest.mark.parametrize("count", [1, 7, 40])
def test_a_draw_is_a_sorted_subset(count: int) -> None:
    torch.manual_seed(0)
    for _ in range(20):
        places = draw(count, 40)
        assert places.shape == (40,)
        assert (places[:count].diff() > 0).all()
        assert places[0] >= 0
        assert places[count - 1] < 40
        assert (places[count:] == 40).all()


def test_every_subset_is_as_likely() -> None:
    torch.manual_seed(0)
    times = 3000
    seen = Counter(tuple(draw(2, 4)[:2].tolist()) for _ in range(times))
    assert len(seen) == 6
    # 500 each, with a standard deviation of 20
    assert all(abs(count - times / 6) < 100 for count in seen.values())


def test_training_draws_anew_from_the_global_generator() -> None:
    encoding = Randomized(HOST).train()
    torch.manual_seed(3)
    one, two = encoding.places(positions(10)), encoding.places(positions(10))
    torch.manual_seed(3)
    assert torch.equal(encoding.places(positions(10)), one)
    assert not torch.equal(one, two)


def test_training_draws_as_many_places_as_the_longest_document_has_tokens() -> None:
    encoding = Randomized(HOST).train()
    index = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0], [0, 1, 2, 3, 4, 0, 1, 2]])
    places = encoding.places(Positions(index, first=0, length=8))
    assert (places < 40).sum() == 5


def test_evaluation_always_takes_the_same_places() -> None:
    torch.manual_seed(0)
    encoding = Randomized(HOST).eval()
    before = torch.get_rng_state()
    places = encoding.places(positions(4))
    assert torch.equal(places, encoding.places(positions(1, first=9)))
    assert torch.equal(before, torch.get_rng_state())
    assert places.shape == (10,)
    assert (places.diff() > 0).all()
    assert 0 <= places[0] < places[-1] < 40
    assert not torch.equal(places, torch.arange(10))


def test_the_places_are_saved_and_survive_a_cast() -> None:
    one, other = Randomized(HOST), Randomized(HOST)
    assert not torch.equal(one.fixed, other.fixed)
    other.load_state_dict(one.bfloat16().state_dict())
    assert torch.equal(one.fixed, other.fixed)
    assert one.fixed.dtype == torch.int64


@pytest.mark.parametrize(("over", "kind"), [("rope", Rope), ("sinusoidal", Sinusoidal)])
def test_it_is_the_other_encoding_at_the_drawn_places(over: str, kind: type[Encoding]) -> None:
    encoding, plain = Randomized(HOST, over=over).eval(), kind(HOST)
    x, query, key = torch.randn(2, 3, 8), torch.randn(2, 2, 3, 4), torch.randn(2, 1, 3, 4)
    index = torch.tensor([[0, 1, 2], [5, 6, 7]])
    here = Positions(index, first=5, length=3)
    there = Positions(encoding.fixed[index], first=5, length=3)
    got_x, got = encoding.begin(x, here)
    expected_x, expected = plain.begin(x, there)
    assert torch.equal(got_x, expected_x)
    got = encoding.encode(query, key, key, x=x, positions=here, state=got)
    expected = plain.encode(query, key, key, x=x, positions=there, state=expected)
    assert torch.equal(got.query, expected.query)
    assert torch.equal(got.memory["key"], expected.memory["key"])


def test_over_absolute_the_table_has_a_row_for_each_place() -> None:
    encoding = Randomized(HOST, over="absolute", length=23).eval()
    assert isinstance(encoding.inner, Absolute)
    assert encoding.inner.table.shape == (23, 8)
    added, _ = encoding.begin(torch.zeros(1, 10, 8), positions(10))
    assert torch.equal(added[0], encoding.inner.table[encoding.fixed])


@pytest.mark.parametrize(
    ("training", "call", "said"),
    [
        (False, positions(4, first=7), "max_length = 10 tokens, got a token at position 10"),
        (True, positions(1, first=7), "drawn anew at each call in training mode.*call eval"),
        (True, positions(41), "drawn from length = 40, got 41 tokens"),
    ],
)
def test_a_call_out_of_range_is_refused(training: bool, call: Positions, said: str) -> None:
    encoding = Randomized(HOST).train(training)
    with pytest.raises(UsageError, match=said):
        encoding.begin(torch.zeros(1, call.length, 8), call)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"over": "alibi"}, "unknown over 'alibi': valid: absolute, rope, sinusoidal"),
        ({"length": 9}, "length must be at least the model's max_length, 10, got 9"),
        ({"length": 0}, "length must be a whole number"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Randomized(HOST, **options)
