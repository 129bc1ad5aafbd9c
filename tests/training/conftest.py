"""A task and model that train in a second, and runs of them."""

from collections.abc import Callable
from typing import Any

import pytest

from milepost.training.session import Progress
from milepost.training.settings import Settings


@pytest.fixture
def make_settings() -> Callable[..., Settings]:
    """Settings of a tiny run, with changes."""

    def make(**changes: Any) -> Settings:
        tiny: dict[str, Any] = {
            "task": "flip-flop",
            "task_settings": {"length": 16},
            "encoding": "rope",
            "model": {"dim": 16, "layers": 1, "heads": 2, "dropout": 0.1},
            "steps": 8,
            "batch": 4,
            "lr": 1e-2,
            "weight_decay": 0.1,
        }
        return Settings(**{**tiny, **changes})

    return make


class StopAfter:
    """A callback and a request to stop, after so many steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.seen: list[Progress] = []

    def progress(self, progress: Progress) -> None:
        self.seen.append(progress)

    def stop(self) -> bool:
        return len(self.seen) >= self.steps


@pytest.fixture
def stop_after() -> type[StopAfter]:
    return StopAfter
