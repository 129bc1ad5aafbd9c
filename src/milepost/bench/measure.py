"""Paired rounds: everyone runs once in each, one after the other, in alternating order.

The speed of a machine drifts within seconds, by its temperature and its other users. So a ratio is
taken within a round, of two runs a moment apart, and the figure is the median over the rounds.
Every second round runs backwards (ABC CBA ABC ...), so that nobody always comes after the same.
"""

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Clock = Callable[[], float]


@dataclass(frozen=True)
class Limits:
    """How often: `most` rounds, fewer where `seconds` are over, but `least` in any case."""

    most: int = 40
    seconds: float = 20.0
    least: int = 5

    @property
    def fewest(self) -> int:
        """The rounds that are made however long they take."""
        return min(self.least, self.most)


WARM_SECONDS = 0.5
WARM_ROUNDS = 10


def paired(
    contenders: Mapping[str, Callable[[], object]], limits: Limits, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """The seconds that each contender took, round by round."""
    _warm_up(contenders, clock)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    forwards = list(contenders)
    collecting = gc.isenabled()
    gc.disable()
    try:
        began = clock()
        for done in range(limits.most):
            if done >= limits.fewest and clock() - began >= limits.seconds:
                break
            for name in forwards if done % 2 == 0 else reversed(forwards):
                contender = contenders[name]
                started = clock()
                contender()
                seconds[name].append(clock() - started)
    finally:
        if collecting:
            gc.enable()
    return seconds


def _warm_up(contenders: Mapping[str, Callable[[], object]], clock: Clock) -> None:
    """Run everyone once, and again while that takes next to no time."""
    began = clock()
    for _ in range(WARM_ROUNDS):
        for contender in contenders.values():
            contender()
        if clock() - began >= WARM_SECONDS:
            return
