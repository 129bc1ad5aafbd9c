"""How far back attention looks, in three numbers.

Zhu et al. 2025 (TAPE, arXiv 2501.00712), Figure 7: on a text of less than 100 tokens the last
layer of RoPE gives 0.30 of its attention to the diagonal, where a token attends to itself, and that
of TAPE 0.17. Means over queries, heads and sequences, of weights a_ij:

    diagonal    a_ii
    distance    Σ_j a_ij (i − j), in tokens
    entropy     −Σ_j a_ij ln a_ij, in nats

Stick-breaking weights do not sum to 1: for distance and entropy they are made to, and queries that
attend to nothing are left out.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from milepost.look import Layer, at_length, read, trace
from milepost.model import Decoder
from milepost.tasks.task import Task

Found = dict[str, dict[str, Any]]

METRICS = ("diagonal", "distance", "entropy")


def measure(
    model: Decoder,
    task: Task,
    *,
    seed: int,
    stop: Callable[[], bool],
    sequences: int = 16,
    length: int | None = None,
) -> Found:
    """The three by layer ("layer 0"), in the "last" one, as in the figure, and over "all".

    Args:
        model: with any encoding.
        task: whose test sequences are read.
        seed: is not used: all rows and seeds are asked the same.
        stop: whether to break off.
        sequences: how many.
        length: of each, as the task's setting; the task's own if None.

    Raises:
        UsageError: the task has no such setting.
    """
    every = []
    for tokens in read(at_length(task, length), sequences):
        if stop():
            return {}
        every.append([looked_back(layer) for layer in trace(model, tokens).layers])
    means = torch.tensor(every, dtype=torch.float64).mean(0)  # (layers, metrics)
    of_layers = [dict(zip(METRICS, row, strict=True)) for row in means.tolist()]
    return {
        **{f"layer {number}": metrics for number, metrics in enumerate(of_layers)},
        "last": of_layers[-1],
        "all": dict(zip(METRICS, means.mean(0).tolist(), strict=True)),
    }


def reads(
    task: Task, *, sequences: int = 16, length: int | None = None
) -> Iterable[tuple[float, int]]:
    """The sequences, each once."""
    yield float(sequences), at_length(task, length).max_length - 1


def looked_back(layer: Layer) -> tuple[float, float, float]:
    """The three numbers of a layer."""
    weights = layer.weights
    sums = weights.sum(-1, keepdim=True)
    of_one = (weights / sums)[sums[..., 0] > 0]  # (heads and queries that attend, S)
    distance = layer.distance.expand_as(weights)[sums[..., 0] > 0]
    return (
        float(weights.diagonal(dim1=1, dim2=2).mean()),
        float((of_one * distance).sum(-1).mean()),
        float(-torch.xlogy(of_one, of_one).sum(-1).mean()),
    )
