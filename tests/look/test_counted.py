"""What heads count, against loops over all pairs."""

from typing import Any

import pytest
import torch

from milepost import encoding
from milepost.errors import UsageError
from milepost.look import Subject, counted, of_text, ranked, shown
from milepost.look.counted import Counted

from .tiny import drawn, every_encoding, make, pairs, subject


def class_of(given: Subject, token: int) -> int:
    (found,) = [n for n, members in enumerate(given.classes.values()) if members[token]]
    return found


def check(given: Subject, layer: int, window: int | None = None) -> None:
    """Falls and pairs of each two classes by a loop over all pairs of tokens."""
    found = counted(given)[layer]
    array = shown(given.trace)[layer][found.of].make()
    falls, numbers = torch.zeros_like(found.falls), torch.zeros_like(found.pairs)
    for i, j in pairs(given.trace.layers[layer], window):
        c, d = class_of(given, i), class_of(given, j)
        numbers[c, d] += 1
        falls[:, c, d] += array[:, i, j]
    assert torch.equal(found.pairs, numbers)
    torch.testing.assert_close(found.falls, falls, rtol=0, atol=1e-10)
    assert found.falls.dtype == torch.float64


@every_encoding
def test_falls_and_pairs_are_sums_over_pairs(name: str, options: dict[str, Any]) -> None:
    given = subject(name, options, layers=2)
    for layer in range(2):
        check(given, layer)


@pytest.mark.parametrize("name", ["cope", "fox", "stick-breaking", "alibi"])
def test_a_window_hides_pairs(name: str) -> None:
    check(subject(name, window=4), 2, window=4)


@pytest.mark.parametrize("name", encoding.names())
def test_gates_are_counted_where_there_are_some_and_else_the_attention(name: str) -> None:
    given = subject(name)
    gated = name.startswith(("cope", "fox", "tape"))
    for found in counted(given):
        assert found.of == ("gates" if gated else "attention")
        assert found.classes == tuple(given.classes)
        assert (found.amount >= 0).all()
        assert (found.amount <= 1).all()


def test_selectivity_is_how_far_from_even_it_is() -> None:
    given = subject("cope")
    for found in counted(given):
        for head, falls in enumerate(found.falls.tolist()):
            total, pairs = sum(map(sum, falls)), found.pairs.sum().item()
            apart = [
                abs(fall / total - pair / pairs)
                for row, even in zip(falls, found.pairs.tolist(), strict=True)
                for fall, pair in zip(row, even, strict=True)
            ]
            assert found.selectivity[head].item() == pytest.approx(sum(apart) / 2)
    nothing = torch.zeros(2, 1, 1)
    empty = Counted("gates", "", ("a",), nothing, torch.ones(1, 1), torch.zeros(2))
    assert empty.selectivity.tolist() == [0, 0]


def test_the_amount_of_gates_is_their_mean() -> None:
    for name in ("cope", "fox", "tape"):
        given = subject(name)
        found = counted(given)[1]
        layer, gates = given.trace.layers[1], shown(given.trace)[1]["gates"]
        array = gates.make()
        for head in range(4):
            seen = [array[head, i, j].item() for i, j in pairs(layer)]
            assert found.amount[head].item() == pytest.approx(sum(seen) / len(seen))
        assert found.meaning == f"{gates.title}, on average"


@pytest.mark.parametrize("options", [{}, {"remainder": "current", "attend_current": True}])
def test_the_amount_of_a_stick_is_what_is_spent(options: dict[str, Any]) -> None:
    given = subject("stick-breaking", options)
    found = counted(given)[1]
    layer = given.trace.layers[1]
    breaking = sorted({i for i, _ in pairs(layer)})
    assert breaking[0] == (0 if options else 1)
    spent = 1 - layer.remainder[:, breaking]
    assert found.amount.tolist() == pytest.approx(spent.mean(-1).tolist())
    assert found.meaning == "spent of the stick"


@pytest.mark.parametrize("name", ["rope", "alibi", "relative", "none"])
def test_the_amount_of_attention_is_what_goes_to_others(name: str) -> None:
    given = subject(name)
    found = counted(given)[1]
    weights = given.trace.layers[1].weights
    others = [1 - weights[:, i, i] for i in range(weights.shape[1])]
    assert found.amount.tolist() == pytest.approx(torch.stack(others).mean(0).tolist())
    assert found.meaning == "attention to other tokens"


def test_shares_are_of_all_queries_or_of_a_class() -> None:
    given = subject("cope")
    found = counted(given)[0]
    for head, falls in enumerate(found.falls.tolist()):
        total = sum(map(sum, falls))
        summed = [sum(column) / total for column in zip(*falls, strict=True)]
        assert found.share()[head].tolist() == pytest.approx(summed)
        for c, name in enumerate(given.classes):
            part = [value / sum(falls[c]) for value in falls[c]]
            assert found.share(name)[head].tolist() == pytest.approx(part)


def test_the_share_of_nothing_is_no_number() -> None:
    first, second, _ = counted(subject("tape"))  # places have not moved yet
    assert first.share().isnan().all()
    assert not first.amount.any()
    assert not second.share().isnan().any()
    # the first token, which is all there is of its class, sees nobody
    first, *_ = counted(subject("stick-breaking", texts="7abc"))
    assert first.share("digit").isnan().all()
    assert first.share("letter").sum(-1).tolist() == pytest.approx([1] * 4)


@pytest.mark.parametrize("name", encoding.names())
def test_a_single_token_is_counted_too(name: str) -> None:
    for found in counted(subject(name, texts="a")):
        assert found.amount.isfinite().all()
        assert found.pairs.item() == (0 if name.startswith("stick-breaking") else 1)


def by_hand(falls: list[list[list[float]]]) -> Counted:
    numbers = torch.tensor(falls, dtype=torch.float64)
    return Counted("gates", "counted", ("a", "b"), numbers, torch.ones(2, 2), numbers.sum((1, 2)))


def test_heads_are_ranked_by_their_share_of_a_class() -> None:
    layers = [
        by_hand([[[1, 1], [1, 1]], [[0, 0], [0, 0]]]),
        by_hand([[[1, 3], [1, 3]], [[8, 0], [0, 1]]]),
    ]
    assert ranked(layers, "b") == [(1, 0, 0.75), (0, 0, 0.5), (1, 1, 1 / 9), (0, 1, 0)]
    assert ranked(layers, "b", "b") == [(1, 1, 1), (1, 0, 0.75), (0, 0, 0.5), (0, 1, 0)]
    assert [place[:2] for place in ranked(layers, "a")] == [(1, 1), (0, 0), (1, 0), (0, 1)]


def test_ranked_shares_are_those_of_each_layer() -> None:
    layers = counted(subject("fox"))
    found = ranked(layers, "space", "letter")
    assert len(found) == 12
    assert [share for *_, share in found] == sorted((share for *_, share in found), reverse=True)
    at = layers[0].classes.index("space")
    for layer, head, share in found:
        assert share == layers[layer].share("letter")[head, at].item()


def test_layers_may_count_by_different_arrays() -> None:
    layers = counted(subject("cope", {"first_layer_only": True}))
    assert [layer.of for layer in layers] == ["gates", "attention", "attention"]


def test_low_precision_is_counted_in_more() -> None:
    model = make("cope").bfloat16()
    for found in counted(of_text("half", model, drawn(), "abcdefgh 12 3456 7")):
        assert found.falls.dtype == found.amount.dtype == torch.float64
        assert found.share().sum(-1).tolist() == pytest.approx([1] * 4)


def test_mistakes_are_named() -> None:
    given = subject("cope")
    layers = counted(given)
    with pytest.raises(UsageError, match="unknown class of keys 'leter': did you mean 'letter'"):
        ranked(layers, "leter")
    with pytest.raises(UsageError, match=r"of queries 'wrd'.* valid: digit, letter"):
        ranked(layers, "letter", "wrd")
    with pytest.raises(UsageError, match="unknown class of queries ''"):
        layers[0].share("")
    with pytest.raises(UsageError, match="classes must be at least one, got none: name those"):
        counted(Subject("bare", given.trace, given.texts, {}))
