"""Gates whose counting is known, because the weights were set so."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from milepost import look
from milepost.model import Config, Decoder
from milepost.study import probes
from milepost.study.probes import gates
from milepost.tasks.flip_flop import FlipFlop
from milepost.tasks.selective_copy import SelectiveCopy

TASK = FlipFlop(length=24, ignore=0.6)
ASKED: dict[str, Any] = {"seed": 0, "stop": lambda: False, "sequences": 5}


def make(encoding: str, **settings: Any) -> Decoder:
    torch.manual_seed(0)
    given = {"dim": 8, "layers": 1, "heads": 2, "norm": "rms", "bias": False, **settings}
    model = Decoder(Config(vocab_size=TASK.vocab_size, encoding=encoding, **given))
    return model.double().eval()


def counting(word: str) -> Decoder:
    """Head 0 counts the tokens `word` and no others; head 1 counts every token by one half."""
    model = make("cope")
    attention = model.blocks[0].attention
    with torch.no_grad():
        model.embedding.weight.copy_(torch.eye(5, 8))  # each token has a feature of its own
        for part in (attention.query, attention.key):
            part.weight.zero_()
        attention.query.weight[0] = 1
        attention.key.weight[0] = -20
        attention.key.weight[0, TASK.vocab.index(word)] = 20
    return model


@pytest.mark.parametrize("word", ["w", "r"])
def test_a_head_that_counts_one_kind_of_token_is_found(word: str) -> None:
    found = gates.measure(counting(word), TASK, **ASKED)
    json.dumps(found, allow_nan=False)
    assert set(found) == {"layer 0 head 0", "layer 0 head 1", "best"}
    head = found["layer 0 head 0"]
    assert head["correlation"][word] == pytest.approx(1, abs=1e-9)
    for name in ("w", "i", "r", "bit"):
        counted = float(name == word)
        assert head["mean"][name] == pytest.approx(counted, abs=1e-9)
        assert head["share"][name] == pytest.approx(counted, abs=1e-9)
        sign = 1 if name == word else -1
        assert head["correlation"][name] == pytest.approx(sign * found["best"][name])
    assert found["best"][word] == pytest.approx(1, abs=1e-9)


def test_gates_that_are_all_alike_go_with_nothing() -> None:
    head = gates.measure(counting("w"), TASK, **ASKED)["layer 0 head 1"]
    assert set(head["correlation"].values()) == {None}
    assert set(head["mean"].values()) == {0.5}
    # then a class has the share of its pairs: of every second token, bits
    pairs = {"bit": 0, "all": 0}
    for tokens in look.read(TASK, 5):
        seen_by = len(tokens) - np.arange(len(tokens))
        pairs["all"] += seen_by.sum()
        pairs["bit"] += seen_by[tokens.numpy() >= 3].sum()
    assert head["share"]["bit"] == pytest.approx(pairs["bit"] / pairs["all"])


@pytest.mark.parametrize("encoding", ["cope", "cope-alibi", "cope+rope", "cope+alibi", "fox"])
def test_the_statistics_are_those_over_all_pairs(encoding: str) -> None:
    model = make(encoding, layers=2, key_heads=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    found = gates.measure(model, TASK, **ASKED)
    for number in range(2):
        for head in range(2):
            gate, is_bit = [], []
            for tokens in look.read(TASK, 5):
                layer = look.trace(model, tokens).layers[number]
                bit = tokens >= 3
                if encoding == "fox":
                    gate.append(1 - layer.forget_gates[head])
                    is_bit.append(bit)
                    continue
                lower = torch.ones_like(layer.gates[head], dtype=torch.bool).tril()
                gate.append(layer.gates[head][lower])
                is_bit.append(bit.expand(len(bit), -1)[lower])
            g, c = torch.cat(gate).numpy(), torch.cat(is_bit).numpy()
            statistics = found[f"layer {number} head {head}"]
            assert statistics["correlation"]["bit"] == pytest.approx(np.corrcoef(g, c)[0, 1])
            assert statistics["mean"]["bit"] == pytest.approx(g[c].mean())
            assert statistics["share"]["bit"] == pytest.approx(g[c].sum() / g.sum())


def test_there_is_nothing_to_find_without_gates() -> None:
    assert gates.measure(make("rope"), TASK, **ASKED) == {}


def test_a_class_without_tokens_has_no_mean() -> None:
    head = gates.measure(counting("w"), FlipFlop(length=24, ignore=0.0), **ASKED)["layer 0 head 0"]
    assert head["mean"]["i"] is None
    assert head["correlation"]["i"] is None
    assert head["share"]["i"] == 0


def test_layers_without_gates_have_no_part() -> None:
    model = make("cope", layers=2, encoding_options={"first_layer_only": True})
    found = gates.measure(model, TASK, **ASKED)
    assert set(found) == {"layer 0 head 0", "layer 0 head 1", "best"}


def test_what_it_will_read_is_foretold() -> None:
    assert list(gates.reads(TASK, sequences=5)) == [(5.0, 23)]
    assert list(gates.reads(TASK, length=40)) == [(16.0, 39)]
    assert list(gates.reads(SelectiveCopy(data=2, blanks=3), sequences=1)) == [(1.0, 7)]


def test_it_breaks_off() -> None:
    assert gates.measure(make("cope"), TASK, seed=0, stop=lambda: True) == {}
    assert "gates" in probes.names()
