"""Paired rounds on a GPU: in each, everyone makes as many calls as fill a measurement.

As on the CPU (`milepost.bench.measure`), a ratio is that of two measurements of one round, every
second round runs backwards, and the figure is the median. Who fails, by memory or otherwise, is
left out with the reason, and the others go on.
"""

import gc
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from milepost.bench.gpu.device import Call, Device, LostError
from milepost.bench.measure import Clock, Limits

# A measurement takes at least so long, in seconds, but no more calls than this
LEAST_SECONDS, MOST_CALLS = 0.02, 1000
WARM_CALLS = 2


@dataclass(frozen=True)
class Entrant:
    """A call, and what has to be entered around it: a choice of backend, say."""

    prepare: Callable[[], Call]
    around: Callable[[], AbstractContextManager[Any]] = nullcontext


@dataclass
class Taken:
    """The seconds of one call by contender and round, and why others are not there."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def paired(
    entrants: Mapping[str, Entrant],
    device: Device,
    limits: Limits,
    clock: Clock,
    least_seconds: float = LEAST_SECONDS,
) -> Taken:
    """Warm everyone up, which compiles, and time them in rounds."""
    taken = Taken()
    calls: dict[str, Call] = {}
    for name, entrant in entrants.items():

        def warm(entrant: Entrant = entrant, name: str = name) -> None:
            call = entrant.prepare()
            for _ in range(WARM_CALLS):
                call()
            device.synchronise()
            seconds = max(device.time(call, 1), 1e-7)
            taken.calls[name] = min(max(1, math.ceil(least_seconds / seconds)), MOST_CALLS)
            calls[name] = call

        _guarded(name, entrant, warm, device, taken)
    forwards = list(calls)
    taken.seconds = {name: [] for name in forwards}
    collecting = gc.isenabled()
    gc.disable()
    try:
        began = clock()
        for done in range(limits.most):
            if done >= limits.fewest and clock() - began >= limits.seconds:
                break
            for name in forwards if done % 2 == 0 else reversed(forwards):
                if name in taken.left_out:
                    continue

                def measure(name: str = name) -> None:
                    taken.seconds[name].append(device.time(calls[name], taken.calls[name]))

                _guarded(name, entrants[name], measure, device, taken)
    finally:
        if collecting:
            gc.enable()
    for name in taken.left_out:
        taken.seconds.pop(name, None)
        taken.calls.pop(name, None)
    return taken


def _guarded(
    name: str, entrant: Entrant, do: Callable[[], None], device: Device, taken: Taken
) -> None:
    try:
        with entrant.around():
            do()
    except Exception as error:
        taken.left_out[name] = reason(error)
        if not device.works():
            raise LostError(f"{name}: {reason(error)}") from error
    else:
        return
    # not before: the error's traceback holds on to what was allocated
    device.free()


def reason(error: BaseException) -> str:
    """An error in a line."""
    if isinstance(error, torch.OutOfMemoryError):
        return f"out of memory ({_first_line(error)})"
    return f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else "no message"
