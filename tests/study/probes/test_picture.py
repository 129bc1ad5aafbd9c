"""The picture is of the heads that its rule names, and its numbers are those of the trace."""

import json
from typing import Any

import pytest
import torch

from milepost import look
from milepost.errors import UsageError
from milepost.model import Config, Decoder
from milepost.study.probes import picture
from milepost.tasks.flip_flop import FlipFlop
from milepost.tasks.selective_copy import SelectiveCopy

TASK = FlipFlop(length=16, ignore=0.5)
ASKED: dict[str, Any] = {"seed": 0, "stop": lambda: False}


def make(name: str, **settings: Any) -> Decoder:
    torch.manual_seed(0)
    given = {"dim": 16, "layers": 2, "heads": 4, **settings}
    model = Decoder(Config(TASK.vocab_size, encoding=name, **given)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def places(found: dict[str, Any]) -> list[tuple[int, int]]:
    return [(head["layer"], head["head"]) for head in found["example"]["heads"]]


def test_the_matrices_are_the_lower_triangles() -> None:
    model, (tokens,) = make("cope"), look.read(TASK, 1)
    found = picture.measure(model, TASK, **ASKED, count=3)
    json.dumps(found, allow_nan=False)
    assert found["example"]["tokens"] == [TASK.vocab[token] for token in tokens]
    assert len(places(found)) == len(set(places(found))) == 3
    for head in found["example"]["heads"]:
        layer = look.trace(model, tokens).layers[head["layer"]]
        for name in ("gates", "position_weights", "weights"):
            matrix = getattr(layer, name)[head["head"]]
            assert [len(row) for row in head[name]] == list(range(1, 16))
            for i, row in enumerate(head[name]):
                assert row == pytest.approx(matrix[i, : i + 1].tolist(), abs=5.01e-4)


def test_most_position_is_where_the_term_moves_most() -> None:
    model = make("cope")
    with torch.no_grad():
        for encoding in model.encodings:
            encoding.table.mul_(0.01)
        model.encodings[1].table.copy_(torch.arange(65.0)[:, None].expand(65, 4))
        query = model.blocks[1].attention.query
        query.weight.zero_()
        query.bias.zero_()
        query.bias[8:12] = 1  # of head 2, the only one to meet the table
    assert places(picture.measure(model, TASK, **ASKED, count=1)) == [(1, 2)]


def test_a_class_finds_the_head_that_counts_it_and_a_sequence_that_has_it() -> None:
    model = make("cope", dim=8, heads=2, norm="rms", bias=False)
    attention = model.blocks[0].attention
    with torch.no_grad():
        model.embedding.weight.copy_(torch.eye(5, 8))
        attention.query.weight.zero_()
        attention.query.weight[4] = 1
        attention.key.weight[4] = -20
        attention.key.weight[4, TASK.vocab.index("r")] = 20
    found = picture.measure(model, TASK, **ASKED, heads="r", count=1)
    assert places(found) == [(0, 1)]
    words = found["example"]["tokens"]
    often = [(row == TASK.vocab.index("r")).sum() for row in look.read(TASK, picture.CHOICE)]
    assert words.count("r") == max(often)
    last = found["example"]["heads"][0]["gates"][-1]
    assert last == [float(word == "r") for word in words]


@pytest.mark.parametrize("name", ["rope", "tape", "stick-breaking"])
def test_without_a_term_it_shows_who_looks_away_from_himself(name: str) -> None:
    model, (tokens,) = make(name), look.read(TASK, 1)
    found = picture.measure(model, TASK, **ASKED, count=8)
    layers = look.trace(model, tokens).layers
    assert len(places(found)) == 8
    to_itself = [
        float(layers[layer].weights[head].diagonal().mean()) for layer, head in places(found)
    ]
    assert to_itself == sorted(to_itself)
    assert {head["gates"] for head in found["example"]["heads"]} == {None}
    assert {head["position_weights"] for head in found["example"]["heads"]} == {None}


def test_the_last_layer_is_shown_head_by_head() -> None:
    model = make("rope")
    assert places(picture.measure(model, TASK, **ASKED, heads="last layer")) == [(1, 0), (1, 1)]
    every = picture.measure(model, TASK, **ASKED, heads="last layer", count=9)
    assert places(every) == [(1, head) for head in range(4)]


def test_of_fox_the_gates_are_what_is_forgotten() -> None:
    model, (tokens,) = make("fox"), look.read(TASK, 1)
    (head,) = picture.measure(model, TASK, **ASKED, count=1)["example"]["heads"]
    forget = look.trace(model, tokens).layers[head["layer"]].forget_gates[head["head"]]
    assert head["gates"][-1] == pytest.approx((1 - forget).tolist(), abs=5.01e-4)
    assert head["gates"][3] == head["gates"][-1][:4]


def test_a_long_text_is_cut_and_the_file_stays_small() -> None:
    found = picture.measure(make("cope"), TASK, **ASKED, length=200)
    assert len(found["example"]["tokens"]) == picture.LARGEST
    assert len(found["example"]["heads"][0]["weights"][-1]) == picture.LARGEST
    assert len(json.dumps(found)) < 300_000


def test_what_has_no_length_is_read_whole_and_shown_to_its_end() -> None:
    task = SelectiveCopy(data=4, blanks=8)
    model = Decoder(Config(task.vocab_size, dim=8, layers=1, heads=2, encoding="cope")).eval()
    (tokens,) = look.read(task, 1)
    found = picture.measure(model, task, **ASKED, length=6)
    assert found["example"]["tokens"] == [task.vocab[token] for token in tokens[-6:]]
    (first, *_) = found["example"]["heads"]
    weights = look.trace(model, tokens).layers[0].weights[first["head"]]
    assert first["weights"][-1] == pytest.approx(weights[-1, -6:].tolist(), abs=5.01e-4)
    assert list(picture.reads(task, length=6)) == [(1.0, 16)]


def test_a_rule_that_does_not_exist_is_named() -> None:
    with pytest.raises(UsageError, match=r"unknown heads of the picture 'newlines': .*bit"):
        picture.measure(make("cope"), TASK, **ASKED, heads="newlines")
    with pytest.raises(UsageError, match="count must be a whole number of heads above 0, got 0"):
        picture.measure(make("cope"), TASK, **ASKED, count=0)


def test_a_class_without_gates_shows_no_head() -> None:
    assert places(picture.measure(make("rope"), TASK, **ASKED, heads="w")) == []


def test_what_it_will_read_is_foretold() -> None:
    assert list(picture.reads(TASK, length=40)) == [(1.0, 39)]


def test_it_breaks_off() -> None:
    assert picture.measure(make("cope"), TASK, seed=0, stop=lambda: True) == {}
