"""Saturation where it can be counted by hand: every gate one half, or set by the weights."""

import json
from typing import Any

import pytest
import torch

from milepost.errors import UsageError
from milepost.model import Config, Decoder
from milepost.study.probes import saturation
from milepost.tasks.counting import Counting
from milepost.tasks.flip_flop import FlipFlop

TASK = FlipFlop(length=12)
ASKED: dict[str, Any] = {"seed": 0, "stop": lambda: False, "sequences": 3}


def halves(encoding: str, **options: Any) -> Decoder:
    """Every query counts every key by one half, in two layers of two heads."""
    config = Config(
        TASK.vocab_size, dim=8, layers=2, heads=2, encoding=encoding, encoding_options=options
    )
    model = Decoder(config).double().eval()
    with torch.no_grad():
        for block in model.blocks:
            block.attention.query.weight.zero_()
            block.attention.query.bias.zero_()
    return model


@pytest.mark.parametrize("encoding", ["cope", "cope-mlp"])
def test_of_half_counts_it_is_what_they_add_up_to(encoding: str) -> None:
    found = saturation.measure(halves(encoding, p_max=3), TASK, lengths=[40], **ASKED)
    json.dumps(found, allow_nan=False)
    assert set(found) == {"x1", "40"}
    for key, read in (("x1", 11), ("40", 39)):
        # (i − j + 1) / 2 ≥ 3 from i − j = 5 on
        far = sum(max(0, i - 4) for i in range(read))
        share = far / (read * (read + 1) / 2)
        metrics = found[key]
        assert metrics["share"] == pytest.approx(share)
        assert metrics["largest share"] == pytest.approx(share)
        assert metrics["count"] == pytest.approx((read + 1) / 4)
        assert metrics["largest count"] == pytest.approx((read + 1) / 4)


def test_the_largest_is_that_of_one_head() -> None:
    model = halves("cope", p_max=3)
    attention = model.blocks[1].attention
    with torch.no_grad():  # head 1 of layer 1 counts all
        attention.query.bias[4:] = 40
        attention.key.weight.zero_()
        attention.key.bias.fill_(1)
    metrics = saturation.measure(model, TASK, **ASKED)["x1"]
    every = sum(max(0, i - 1) for i in range(11)) / 66
    half = sum(max(0, i - 4) for i in range(11)) / 66
    assert metrics["largest share"] == pytest.approx(every)
    assert metrics["share"] == pytest.approx((every + 3 * half) / 4)
    assert metrics["largest count"] == pytest.approx(6)
    assert metrics["count"] == pytest.approx((6 + 3 * 3) / 4)


def test_without_an_end_there_is_no_share() -> None:
    metrics = saturation.measure(halves("cope-alibi"), TASK, **ASKED)["x1"]
    assert metrics["share"] is metrics["largest share"] is None
    assert metrics["count"] == pytest.approx(3)


def test_there_is_nothing_to_find_without_positions() -> None:
    assert saturation.measure(halves("rope"), TASK, **ASKED) == {}


def test_it_takes_sequences_as_they_come() -> None:
    task = Counting(max_steps=5)
    config = Config(task.vocab_size, dim=8, layers=1, heads=2, encoding="cope")
    assert set(saturation.measure(Decoder(config).eval(), task, **ASKED)) == {"x1"}
    with pytest.raises(UsageError, match="length must be left out"):
        saturation.measure(Decoder(config).eval(), task, lengths=[8], **ASKED)


def test_what_it_will_read_is_foretold() -> None:
    asked = {"lengths": [8, 40], "factors": [0.5, 2], "sequences": 3}
    assert list(saturation.reads(TASK, **asked)) == [(3.0, n) for n in (7, 39, 5, 23)]
    assert list(saturation.reads(TASK)) == [(8.0, 11)]


def test_a_factor_is_of_the_tasks_own_length() -> None:
    found = saturation.measure(halves("cope"), TASK, factors=[0.5, 2], **ASKED)
    assert {key: one["count"] for key, one in found.items()} == {"x0.5": 1.5, "x2": 6.0}


def test_it_breaks_off() -> None:
    assert saturation.measure(halves("cope"), TASK, seed=0, stop=lambda: True) == {}
