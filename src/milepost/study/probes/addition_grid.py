"""Exact match on every cell of the grid of operand lengths: the heat maps of addition.

Cell (i, j) asks for `samples` sums of a number of i digits and one of j. A sum is right if greedy
decoding writes all of its answer, the end included. That needs no decoding: up to the first error
it sees the same tokens as teacher forcing does (`milepost.training.score`).

Source: Zhu et al. 2025 (TAPE, arXiv:2501.00712), Figures 2, 4 and 5, which follow McLeish et al.
2024 (Abacus, arXiv:2405.17399): 100 sums for each cell, and twice the digits of training. The
average that they print is over all cells, those of trained lengths included, which are a quarter;
"in" is the average over these alone, "out" over the others.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch.nn.functional import pad

from milepost.errors import UsageError
from milepost.evaluate import PAIRS
from milepost.model import Decoder
from milepost.tasks.addition import Addition, longest
from milepost.tasks.task import IGNORE, Batch, Task, is_whole, keyed_generator
from milepost.training.device import randomness_of

BATCH = 256
"""The most sums that the model is given at once; `PAIRS` may allow fewer."""

Cell = tuple[int, int]


@torch.inference_mode()
def measure(
    model: Decoder,
    task: Task,
    *,
    seed: int,
    stop: Callable[[], bool],
    digits: int | None = None,
    samples: int = 100,
) -> dict[str, dict[str, Any]]:
    """How many sums of each cell are right.

    The sums of a cell depend on nothing but the cell and `samples`, whatever the seed.

    Args:
        model: in evaluation, on its own device.
        task: `addition`, as it was trained on.
        seed: not used.
        stop: asked now and then; once it is true the rest is not measured.
        digits: n, the side of the grid; twice the task's if None.
        samples: of each cell.

    Returns:
        "grid": `right`, the counts, row i - 1 and column j - 1; `samples`; `trained`, the digits;
        "mean": shares of all cells ("accuracy"), of those within the trained digits ("in") and of
        the others ("out"), None where there are none.

    Raises:
        UsageError: the task is another, a setting is not a whole number above 0, or the model has
            a table that ends before the longest sum.
    """
    task, n = _checked(task, digits, samples)
    device = next(model.parameters()).device
    right = np.zeros((n, n), dtype=np.int64)
    with randomness_of(0, device):
        for length, cells in _cells(n).items():
            rows = max(1, min(BATCH, PAIRS // length**2))
            for batch, cell in _questions(task, cells, samples, rows):
                if stop():
                    return {}
                np.add.at(right, tuple(cell[_right(model, batch, device)].T - 1), 1)
    trained = np.arange(1, n + 1) <= task.digits
    within = trained[:, None] & trained
    return {
        "grid": {"right": right.tolist(), "samples": samples, "trained": task.digits},
        "mean": {
            name: float(right[chosen].mean() / samples) if chosen.any() else None
            for name, chosen in (
                ("accuracy", np.ones_like(within)),
                ("in", within),
                ("out", ~within),
            )
        },
    }


def reads(
    task: Task, *, digits: int | None = None, samples: int = 100
) -> Iterable[tuple[float, int]]:
    """How many sums of how many tokens."""
    _, n = _checked(task, digits, samples)
    for length, cells in _cells(n).items():
        yield len(cells) * samples, length - 1  # the last token is not read


def _checked(task: Task, digits: int | None, samples: int) -> tuple[Addition, int]:
    if not isinstance(task, Addition):
        raise UsageError(
            f"the probe addition_grid expected the task addition, got {task.name}: measure models "
            f"trained on addition"
        )
    n = 2 * task.digits if digits is None else digits
    for setting, value in (("digits", n), ("samples", samples)):
        if not is_whole(value, 1):
            raise UsageError(
                f"{setting} of addition_grid must be a whole number above 0, got {value!r}: "
                f"leave it out for the paper's"
            )
    return task, n


def _cells(n: int) -> dict[int, list[Cell]]:
    """The cells by the tokens of their longest sum: what is read together has little padding."""
    cells = defaultdict(list)
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            cells[longest(i, j)].append((i, j))
    return cells


def _questions(
    task: Addition, cells: list[Cell], samples: int, rows: int
) -> Iterable[tuple[Batch, Int64[np.ndarray, "B 2"]]]:
    """The cells' sums, at most `rows` at a time, and of which cell each of them is."""
    drawn = [
        task.exactly(i, j, keyed_generator("addition", 0, f"grid {i} {j}", 0), samples)
        for i, j in cells
    ]
    width = max(batch.tokens.shape[1] for batch in drawn)
    tokens, scored = (
        torch.cat([pad(part, (0, width - part.shape[1])) for part in parts])
        for parts in ([b.tokens for b in drawn], [b.scored for b in drawn])
    )
    cell = np.repeat(cells, samples, axis=0)
    for first in range(0, len(cell), rows):
        part = slice(first, first + rows)
        yield Batch(tokens[part], scored[part]), cell[part]


def _right(model: Decoder, batch: Batch, device: torch.device) -> Bool[np.ndarray, " B"]:
    """Which answers are right in every token."""
    targets = batch.targets.to(device)
    wrong = (model(batch.inputs.to(device)).argmax(-1) != targets) & (targets != IGNORE)
    return (~wrong.any(1)).cpu().numpy()
