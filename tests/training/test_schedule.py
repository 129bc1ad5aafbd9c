"""Learning rates against their closed forms."""

import math
from collections.abc import Callable

import pytest

from milepost.training.schedule import learning_rate
from milepost.training.settings import Settings

Make = Callable[..., Settings]


def rates(settings: Settings) -> list[float]:
    return [learning_rate(settings, step) for step in range(settings.steps)]


def test_constant(make_settings: Make) -> None:
    assert rates(make_settings(schedule="constant", steps=5, lr=0.5)) == [0.5] * 5


def test_linear(make_settings: Make) -> None:
    expected = [1.0, 0.75, 0.5, 0.25]
    assert rates(make_settings(schedule="linear", steps=4, lr=1)) == pytest.approx(expected)


def test_cosine(make_settings: Make) -> None:
    expected = [1.0, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2]
    assert rates(make_settings(schedule="cosine", steps=4, lr=1)) == pytest.approx(expected)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_warmup_rises_to_the_peak_and_the_schedule_takes_over(
    schedule: str, make_settings: Make
) -> None:
    whole = rates(make_settings(schedule=schedule, steps=10, warmup=4, lr=2))
    assert whole[:4] == [0.5, 1.0, 1.5, 2.0]
    assert whole[4:] == pytest.approx(rates(make_settings(schedule=schedule, steps=6, lr=2)))


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_run_may_end_within_the_warmup(schedule: str, make_settings: Make) -> None:
    assert rates(make_settings(schedule=schedule, steps=2, warmup=4, lr=1)) == [0.25, 0.5]
    assert rates(make_settings(schedule=schedule, steps=2, warmup=2, lr=1)) == [0.5, 1.0]
