"""Perplexity by window: what is read is what is foretold, and equal for every window."""

import json
from pathlib import Path
from typing import Any

import pytest

from milepost.errors import UsageError
from milepost.model import Config, Decoder
from milepost.perplexity import perplexity as measured
from milepost.study import probes
from milepost.tasks import build
from milepost.tasks.text import Text

FOLDER = Path(__file__).parents[2] / "tasks" / "corpus"
TASK = build("text", corpus=str(FOLDER), length=16)
PROBE = probes.load("perplexity")


def model(encoding: str = "rope", **options: Any) -> Decoder:
    config = Config(vocab_size=256, dim=16, layers=1, heads=2, encoding=encoding, **options)
    return Decoder(config).eval()


def measure(of: Decoder, **settings: Any) -> dict[str, dict[str, Any]]:
    return PROBE.measure(of, TASK, seed=0, stop=lambda: False, **settings)


def test_each_window_is_what_milepost_perplexity_says() -> None:
    of = model()
    found = measure(of, windows=[8, 32], tokens=100)
    assert isinstance(TASK, Text)
    text = TASK.text("test", 97)  # 96 are three windows of 32
    for window in (8, 32):
        expected, one = measured(of, text, window=window), found[str(window)]
        assert one["tokens"] == expected.tokens == 96
        assert one["nats"] == expected.nats
        assert one["perplexity"] == expected.perplexity
        assert one["bits_per_byte"] == expected.bits
        assert one["word_perplexity"] == expected.per(len(bytes(text[1:].tolist()).split()))
        assert one["position"][-1] == window
        assert len(one["position"]) == len(one["by_position"])
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_factors_are_of_the_trained_length() -> None:
    of = model()
    by_factor = measure(of, factors=[0.5, 1, 2], tokens=62)
    by_window = measure(of, windows=[7, 15, 31], tokens=62)
    assert list(by_factor) == ["x0.5", "x1", "x2"]
    assert list(by_factor.values()) == list(by_window.values())


def test_sliding_windows_and_positions_past_the_trained_length() -> None:
    found = measure(model(), windows=[8, 64], stride=4, tokens=128)
    assert found["64"]["position"][-1] == 64
    assert all(value is not None for value in found["64"]["by_position"])
    apart = measure(model(), windows=[8, 64], tokens=128)
    assert found["8"]["nats"] != apart["8"]["nats"]


def test_a_window_that_cannot_be_read_says_why_and_the_others_are_there() -> None:
    found = measure(model("absolute", max_length=20), windows=[16, 32, 1000], tokens=2000)
    assert found["16"]["nats"] > 0
    assert list(found["32"]) == list(found["1000"]) == ["refused"]
    assert "absolute positions were built for 20 tokens" in found["32"]["refused"]
    assert "the test documents have 150 tokens to say" in found["1000"]["refused"]


def test_nothing_is_measured_after_stop() -> None:
    stops = iter([False, True])
    found = PROBE.measure(
        model(), TASK, seed=0, stop=lambda: next(stops), windows=[8, 16], tokens=64
    )
    assert list(found) == ["8"]


@pytest.mark.parametrize("stride", [None, 4, 100])
def test_reads_is_what_is_read(stride: int | None) -> None:
    of, seen = model(), list[tuple[int, int]]()
    of.register_forward_pre_hook(lambda _, given: seen.append(tuple(given[0].shape)))
    settings: dict[str, Any] = {"windows": [8, 32], "tokens": 128, "stride": stride}
    measure(of, **settings)
    foretold = {length: count for count, length in PROBE.reads(TASK, **settings)}
    for window in (8, 32):
        read = sum(rows for rows, length in seen if length == window)
        assert read == pytest.approx(foretold[window], abs=1)


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="task must be text for a perplexity, got flip-flop"):
        PROBE.measure(
            model(), build("flip-flop"), seed=0, stop=lambda: False, windows=[8], tokens=9
        )
    with pytest.raises(UsageError, match="windows must have a length in it"):
        measure(model(), tokens=9)
    with pytest.raises(UsageError, match="windows must be a whole number of at least 1, got 0"):
        measure(model(), windows=[0], tokens=9)
    with pytest.raises(UsageError, match="stride must be a whole number"):
        measure(model(), windows=[8], tokens=9, stride=1.5)
