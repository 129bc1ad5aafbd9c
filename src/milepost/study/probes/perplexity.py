"""Perplexity of the test documents by the window that a model reads, also past its training length.

Of each window there are the nats and the perplexity of a token, the perplexity of a word, the bits
per byte, and the nats by position in the window (`milepost.evaluate.evaluate_text`). Every row and
seed says the same tokens, and the same ones at every window.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from milepost.errors import UsageError
from milepost.evaluate import evaluate_text
from milepost.model import Decoder
from milepost.tasks.task import Task


def measure(
    model: Decoder,
    task: Task,
    *,
    seed: int,
    stop: Callable[[], bool],
    tokens: int,
    windows: Sequence[int] = (),
    factors: Sequence[float] = (),
    stride: int | None = None,
) -> dict[str, dict[str, Any]]:
    """By the length of a window, "128", or its factor, "x2"; what is refused has only "refused".

    Args:
        model: in evaluation mode.
        task: of the kind `text`.
        seed: is not used: all rows and seeds are asked the same.
        stop: asked before each window.
        tokens: how many of the test documents are scored, at most.
        windows: how many tokens are read at a time.
        factors: the same in lengths of training, of whose last token nothing is asked.
        stride: from one window to the next; None for windows side by side.

    Raises:
        UsageError: the task is another, or a setting is no number that fits.
    """
    keys = _windows(task, windows, factors)
    found = evaluate_text(
        model, task, windows=[*keys.values()], stride=stride, tokens=tokens, stop=stop
    )
    return {key: found[str(window)] for key, window in keys.items() if str(window) in found}


def reads(
    task: Task,
    *,
    tokens: int,
    windows: Sequence[int] = (),
    factors: Sequence[float] = (),
    stride: int | None = None,
) -> Iterator[tuple[float, int]]:
    """How many windows of each length will be read."""
    for window in _windows(task, windows, factors).values():
        yield max(1.0, 1 + (tokens - window) / min(stride or window, window)), window


def _windows(task: Task, windows: Sequence[int], factors: Sequence[float]) -> dict[str, int]:
    """The windows by what they are called."""
    if not windows and not factors:
        raise UsageError("windows must have a length in it, got none: or give factors, as [1, 2]")
    lengths = {f"x{factor:g}": round(factor * task.max_length) - 1 for factor in factors}
    return {**{str(window): window for window in windows}, **lengths}
