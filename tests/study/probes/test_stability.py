"""What knows no absolute places does not see a shift; what does know them does."""

import json
from typing import Any

import pytest
import torch

from milepost import look
from milepost.errors import UsageError
from milepost.model import Config, Decoder
from milepost.study.probes import stability
from milepost.tasks.flip_flop import FlipFlop
from milepost.tasks.passkey import Passkey

TASK = FlipFlop(length=16)
ASKED: dict[str, Any] = {"seed": 0, "stop": lambda: False, "sequences": 2}


def make(name: str, vocab_size: int = TASK.vocab_size, **settings: Any) -> Decoder:
    torch.manual_seed(0)
    given = {"dim": 16, "layers": 3, "heads": 4, "key_heads": 2, "max_length": 32, **settings}
    model = Decoder(Config(vocab_size, encoding=name, **given)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def of_layers(found: dict[str, Any], way: str, metric: str) -> list[Any]:
    return [found[f"{way} layer {number}"][metric] for number in range(3)]


@pytest.mark.parametrize("options", [{}, {"variant": "released"}], ids=["paper", "released"])
def test_tape_is_equivariant(options: dict[str, Any]) -> None:
    found = stability.measure(make("tape", encoding_options=options), TASK, **ASKED)
    json.dumps(found, allow_nan=False)
    for metric in ("attention", "rows", "positions"):
        assert max(of_layers(found, "shift", metric)) < 1e-12, metric
        assert min(of_layers(found, "tokens", metric)[1:]) > 1e-5, metric
    # in the first layer positions are RoPE's still
    assert found["tokens first layer"]["positions"] < 1e-12
    for way in ("shift", "tokens"):
        assert found[f"{way} first layer"] == found[f"{way} layer 0"]
        assert found[f"{way} last layer"] == found[f"{way} layer 2"]


def test_rope_is_too_and_its_positions_stay_whatever_is_added() -> None:
    found = stability.measure(make("rope"), TASK, **ASKED)
    assert max(of_layers(found, "shift", "attention")) < 1e-12
    for way in ("shift", "tokens"):
        assert max(of_layers(found, way, "positions")) < 1e-12
    assert min(of_layers(found, "tokens", "attention")) > 0.01


def test_absolute_positions_are_not() -> None:
    found = stability.measure(make("absolute"), TASK, **ASKED)
    assert min(of_layers(found, "shift", "attention")) > 0.01
    assert min(of_layers(found, "shift", "rows")) > 0.01
    assert of_layers(found, "shift", "positions") == [None, None, None]


def test_a_table_that_ends_too_early_is_named() -> None:
    with pytest.raises(UsageError, match="absolute positions were built for 16 tokens"):
        stability.measure(make("absolute", max_length=16), TASK, **ASKED)


def test_the_numbers_are_what_the_page_says() -> None:
    model, (tokens,) = make("tape"), look.read(TASK, 1)
    found = stability.measure(model, TASK, seed=0, stop=lambda: False, sequences=1, by=2)
    front = torch.zeros(2, dtype=torch.int64)  # the first word of the vocabulary is w
    before = look.trace(model, tokens).layers
    after = look.trace(model, torch.cat((front, tokens))).layers
    for number, (one, other) in enumerate(zip(before, after, strict=True)):
        a, b = one.weights, other.weights[:, 2:, 2:]
        change = torch.linalg.vector_norm(b - a) / torch.linalg.vector_norm(a)
        assert found[f"tokens layer {number}"]["attention"] == pytest.approx(float(change))
        rows = (b - a).abs().sum(2).div(2).mean()
        assert found[f"tokens layer {number}"]["rows"] == pytest.approx(float(rows))
        g, h = one.place_products, other.place_products[:, 2:, 2:]
        change = torch.linalg.vector_norm(h - g) / torch.linalg.vector_norm(g)
        assert found[f"tokens layer {number}"]["positions"] == pytest.approx(
            float(change), abs=1e-10
        )


def test_bytes_get_newlines(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def trace(model: Decoder, tokens: torch.Tensor, shift: int = 0) -> look.Trace:
        seen.append((tokens[:4].tolist(), shift))
        return look.trace(model, tokens, shift=shift)

    monkeypatch.setattr(stability, "trace", trace)
    model = make("rope", vocab_size=256, layers=1)
    stability.measure(model, Passkey(), **{**ASKED, "sequences": 1, "length": 400})
    there = list(b"Ther")
    assert seen == [(there, 0), ([10, 10, 10, there[0]], 0), (there, 3)]


def test_what_it_will_read_is_foretold() -> None:
    assert list(stability.reads(TASK, sequences=2)) == [(4.0, 15), (2.0, 18)]


def test_it_breaks_off() -> None:
    assert stability.measure(make("rope"), TASK, seed=0, stop=lambda: True) == {}
