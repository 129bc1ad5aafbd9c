"""Attention whose weights are known: even, on the token itself, or broken off a stick."""

import json
import math
from typing import Any

import pytest
import torch

from milepost import encoding
from milepost.model import Config, Decoder
from milepost.study.probes import attention
from milepost.tasks.flip_flop import FlipFlop

TASK = FlipFlop(length=12)
ASKED: dict[str, Any] = {"seed": 0, "stop": lambda: False, "sequences": 3}
READ = 11


def make(name: str, **options: Any) -> Decoder:
    torch.manual_seed(0)
    config = Config(
        TASK.vocab_size, dim=8, layers=2, heads=2, encoding=name, encoding_options=options
    )
    return Decoder(config).double().eval()


def silent(model: Decoder, layer: int) -> None:
    """Let all content logits of the layer be 0."""
    with torch.no_grad():
        model.blocks[layer].attention.query.weight.zero_()
        model.blocks[layer].attention.query.bias.zero_()


def test_even_attention() -> None:
    model = make("none")
    silent(model, 1)
    found = attention.measure(model, TASK, **ASKED)
    json.dumps(found, allow_nan=False)
    assert set(found) == {"layer 0", "layer 1", "last", "all"}
    assert found["last"] == found["layer 1"]
    assert found["last"]["diagonal"] == pytest.approx(sum(1 / n for n in range(1, 12)) / READ)
    assert found["last"]["distance"] == pytest.approx(sum(i / 2 for i in range(11)) / READ)
    assert found["last"]["entropy"] == pytest.approx(sum(map(math.log, range(1, 12))) / READ)
    for metric, mean in found["all"].items():
        both = (found["layer 0"][metric] + found["layer 1"][metric]) / 2
        assert mean == pytest.approx(both)
    assert found["layer 0"]["diagonal"] != pytest.approx(found["layer 1"]["diagonal"])


def test_attention_to_oneself() -> None:
    model = make("t5")
    with torch.no_grad():
        model.encodings[0].table[:, 0] = 1000
    assert attention.measure(model, TASK, **ASKED)["all"] == {
        "diagonal": 1.0,
        "distance": 0.0,
        "entropy": 0.0,
    }


def test_a_stick_that_is_broken_in_halves() -> None:
    """Query i has 2⁻¹, 2⁻², … of the keys before it, and nothing of itself."""
    model = make("stick-breaking")
    silent(model, 1)
    expected = {"diagonal": 0.0, "distance": 0.0, "entropy": 0.0}
    for i in range(1, READ):
        whole = 1 - 2**-i
        shares = [2**-n / whole for n in range(1, i + 1)]
        expected["distance"] += sum(n * s for n, s in enumerate(shares, 1)) / (READ - 1)
        expected["entropy"] -= sum(s * math.log(s) for s in shares) / (READ - 1)
    found = attention.measure(model, TASK, **ASKED)["last"]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("name", encoding.names())
def test_every_encoding_has_the_three(name: str) -> None:
    found = attention.measure(make(name), TASK, **ASKED, length=8)
    assert all(math.isfinite(number) for layer in found.values() for number in layer.values())


def test_what_it_will_read_is_foretold() -> None:
    assert list(attention.reads(TASK, sequences=3, length=8)) == [(3.0, 7)]


def test_it_breaks_off() -> None:
    assert attention.measure(make("rope"), TASK, seed=0, stop=lambda: True) == {}
