"""What gates count: how those of each head go with the kinds of tokens.

CoPE's gate g_ij says how much query i counts key j (Golovneva et al. 2024, arXiv 2405.18719, Eq. 3;
its Figures 4 and 6 show heads that count paragraphs and sections). FoX has a gate for each token,
whatever the query, and 1 − f_j says how much token j makes the model forget (arXiv 2503.02130).
With c_j = 1 where token j is of a class and 0 elsewhere, a head has

    correlation   Pearson's r of g_ij and c_j, which for two classes is the point-biserial one
    mean          of g_ij where c_j = 1
    share         Σ g_ij c_j / Σ g_ij, of all that it counts

over all pairs j ≤ i of all sequences, or over all tokens for FoX. A number that is not defined, as
the correlation of gates that are all alike, is None.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from milepost.look import Layer, at_length, read, token_classes, trace
from milepost.model import Decoder
from milepost.tasks.task import Task

Found = dict[str, dict[str, Any]]


def measure(
    model: Decoder,
    task: Task,
    *,
    seed: int,
    stop: Callable[[], bool],
    sequences: int = 16,
    length: int | None = None,
) -> Found:
    """By head ("layer 0 head 1"), the three by token class; "best" is the largest |r| of any head.

    Args:
        model: whose encoding has gates; of any other, nothing is found.
        task: whose test sequences are read.
        seed: is not used: all rows and seeds are asked the same.
        stop: whether to break off.
        sequences: how many.
        length: of each, as the task's setting; the task's own if None.

    Raises:
        UsageError: the task has no such setting, or no token classes.
    """
    task = at_length(task, length)
    classes = token_classes(task)
    members = torch.stack(list(classes.values()))
    totals: dict[int, Sums] = {}
    for tokens in read(task, sequences):
        if stop():
            return {}
        of_class = members[:, tokens].double()
        for number, layer in enumerate(trace(model, tokens).layers):
            gates = counting(layer)
            if gates is not None:
                totals.setdefault(number, Sums()).add(*gates, of_class.to(gates[0].device))
    found: Found = {}
    for number, sums in totals.items():
        for head, statistics in enumerate(sums.statistics(list(classes))):
            found[f"layer {number} head {head}"] = statistics
    if found:
        every = [head["correlation"] for head in found.values()]
        found["best"] = {
            name: max((abs(r[name]) for r in every if r[name] is not None), default=None)
            for name in classes
        }
    return found


def reads(
    task: Task, *, sequences: int = 16, length: int | None = None
) -> Iterable[tuple[float, int]]:
    """The sequences, each once."""
    yield float(sequences), at_length(task, length).max_length - 1


def counting(layer: Layer) -> tuple[Tensor, Tensor] | None:
    """Gates (H, S, S) and which pairs there are, or (H, 1, S) of tokens; None without gates."""
    gates = layer.gates
    if gates is not None:
        return gates, layer.visible  # what a bias hides is counted all the same
    forget = layer.forget_gates
    if forget is None:
        return None
    return 1 - forget[:, None], torch.ones_like(forget[:1, None], dtype=torch.bool)


class Sums:
    """Of gates and token classes, what their means and correlations are made of."""

    def __init__(self) -> None:
        self.pairs = self.gates = self.squares = torch.zeros((), dtype=torch.float64)
        self.pairs_of_class = self.gates_of_class = self.pairs

    def add(self, gates: Tensor, pairs: Tensor, of_class: Tensor) -> None:
        """Gates (H, Q, S) at `pairs` (1, Q, S), and the classes (C, S) of the keys."""
        gates = gates.double() * pairs
        of_key = gates.sum(1)  # (H, S)
        pairs_of_key = pairs.sum(1).double()
        self.pairs = self.pairs + pairs.sum().cpu()
        self.gates = self.gates + of_key.sum(1).cpu()
        self.squares = self.squares + gates.square().sum((1, 2)).cpu()
        self.pairs_of_class = self.pairs_of_class + (pairs_of_key @ of_class.mT).cpu()
        self.gates_of_class = self.gates_of_class + (of_key @ of_class.mT).cpu()

    def statistics(self, names: list[str]) -> list[dict[str, dict[str, float | None]]]:
        """For each head, correlation, mean and share by class."""
        n, member = self.pairs, self.pairs_of_class
        mean = self.gates[:, None] / n
        covariance = self.gates_of_class / n - mean * member / n
        # the variance of numbers in [0, 1] that are all alike comes out as rounding alone
        variance = (self.squares[:, None] / n - mean.square()).clamp(min=0)
        variance = variance.masked_fill(variance < 1e-12, 0)
        spread = (variance * (member / n) * (1 - member / n)).sqrt()
        computed = {
            "correlation": covariance / spread,
            "mean": self.gates_of_class / member,
            "share": self.gates_of_class / self.gates[:, None],
        }
        return [
            {
                key: {
                    name: number if math.isfinite(number) else None
                    for name, number in zip(names, values[head].tolist(), strict=True)
                }
                for key, values in computed.items()
            }
            for head in range(len(self.gates))
        ]
