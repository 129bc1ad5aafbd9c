"""Whether attention stays as it is when all tokens move by a few places.

Zhu et al. 2025 (TAPE, arXiv 2501.00712), Table 8, moves them in two ways: three tokens are put in
front ("tokens"), or the first token has the number 3 ("shift"). What does not know absolute
places, as RoPE and TAPE, sees nothing of the second. Of the first it sees that there are three more
keys. The table has two differences for each layer, and does not say how it measures them; here

    attention    ‖A′ − A‖_F / ‖A‖_F of the weights of all heads
    rows         the mean over queries of ½ Σ_j |a′_ij − a_ij|, their total variation
    positions    ‖G′ − G‖_F / ‖G‖_F with G_ij = ⟨e_i, e_j⟩ of the positions that RoPE and TAPE
                 turn by (`Layer.place_products`); None of other encodings

Of A′ and G′ the rows and columns of added tokens are left out, so that both are of the same pairs.
The table adds three [BOS], the text around it one, and the released code three, but has no code for
the metrics. Our tasks have no [BOS]: bytes get newlines, and others the first token of their
vocabulary, such as the padding or the blank.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from milepost.look import Trace, at_length, read, trace
from milepost.model import Decoder
from milepost.tasks.task import Task
from milepost.tasks.text import BYTES

Found = dict[str, dict[str, Any]]


def measure(
    model: Decoder,
    task: Task,
    *,
    seed: int,
    stop: Callable[[], bool],
    sequences: int = 8,
    length: int | None = None,
    by: int = 3,
) -> Found:
    """The three by way and layer: "shift layer 0", "shift first layer", "tokens last layer".

    Args:
        model: with any encoding.
        task: whose test sequences are read.
        seed: is not used: all rows and seeds are asked the same.
        stop: whether to break off.
        sequences: how many.
        length: of each, as the task's setting; the task's own if None.
        by: how many places; 3 in the paper.

    Raises:
        UsageError: the task has no such setting, or a table of positions ends too early.
    """
    front = torch.full((by,), ord("\n") if task.vocab == BYTES else 0)
    added, shifted = Differences(), Differences()
    for tokens in read(at_length(task, length), sequences):
        if stop():
            return {}
        before = trace(model, tokens)
        added.add(before, trace(model, torch.cat((front, tokens))), by)
        shifted.add(before, trace(model, tokens, shift=by))
    return {**added.found("tokens"), **shifted.found("shift")}


def reads(
    task: Task, *, sequences: int = 8, length: int | None = None, by: int = 3
) -> Iterable[tuple[float, int]]:
    """The sequences as they are, with tokens in front, and shifted."""
    tokens = at_length(task, length).max_length - 1
    yield 2.0 * sequences, tokens
    yield float(sequences), tokens + by


class Differences:
    """Between traces of the same tokens in two places, by layer."""

    def __init__(self) -> None:
        self.attention: dict[int, Tensor] = {}
        self.positions: dict[int, Tensor] = {}
        self.rows: dict[int, list[float]] = {}

    def add(self, here: Trace, there: Trace, front: int = 0) -> None:
        """Take in one sequence; `front` tokens of `there` stand before those of `here`."""
        for number, (one, other) in enumerate(zip(here.layers, there.layers, strict=True)):
            before, after = one.weights, other.weights[:, front:, front:]
            squares(self.attention, number, before, after)
            moved = (after - before).abs().sum(-1).mean() / 2
            self.rows.setdefault(number, []).append(float(moved))
            places, elsewhere = one.place_products, other.place_products
            if places is not None and elsewhere is not None:
                squares(self.positions, number, places, elsewhere[:, front:, front:])

    def found(self, way: str) -> Found:
        """The three of each layer."""
        of_layers = [
            {
                "attention": share(self.attention.get(number)),
                "rows": sum(moved) / len(moved),
                "positions": share(self.positions.get(number)),
            }
            for number, moved in self.rows.items()
        ]
        return {
            **{f"{way} layer {number}": each for number, each in enumerate(of_layers)},
            f"{way} first layer": of_layers[0],
            f"{way} last layer": of_layers[-1],
        }


def squares(sums: dict[int, Tensor], number: int, before: Tensor, after: Tensor) -> None:
    """Add ‖A′ − A‖² and ‖A‖² to the sums of a layer."""
    both = torch.stack(((after - before).double().square().sum(), before.double().square().sum()))
    sums[number] = sums.get(number, torch.zeros_like(both)) + both


def share(sums: Tensor | None) -> float | None:
    """‖A′ − A‖ / ‖A‖, or None of nothing."""
    if sums is None or not sums[1]:
        return None
    return math.sqrt(float(sums[0] / sums[1]))
