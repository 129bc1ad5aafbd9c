"""One test sequence and what a head or two do with it, to be drawn.

As Figures 4 and 6 of the CoPE paper (Golovneva et al. 2024, arXiv 2405.18719): gates, attention by
position alone with the largest of each query at 1, and the attention itself.

Heads are chosen by a rule. "most position" takes those whose logits position moves most: the
largest mean over queries of the standard deviation of term_ij over the keys seen. Where position
adds no term (RoPE, TAPE, stick-breaking) it takes those that attend least to the token itself. The
name of a token class, as "newline", takes those whose gates go most closely with it, up or down
(`milepost.study.probes.gates`), in the sequence that has most such tokens of the first `CHOICE`.
"last layer" takes the first heads of that layer, as Figure 7 of the TAPE paper (Zhu et al. 2025,
arXiv 2501.00712) shows it.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from milepost.errors import UsageError, unknown
from milepost.look import Layer, Trace, at_length, has_length, read, token_classes, trace
from milepost.model import Decoder
from milepost.study.probes import gates
from milepost.tasks.task import Task, is_whole

Found = dict[str, dict[str, Any]]

MOST_POSITION = "most position"
LAST_LAYER = "last layer"
WITHOUT_CLASS = (MOST_POSITION, LAST_LAYER)
LARGEST = 96
CHOICE = 16


def measure(
    model: Decoder,
    task: Task,
    *,
    seed: int,
    stop: Callable[[], bool],
    length: int | None = None,
    heads: str = MOST_POSITION,
    count: int = 2,
) -> Found:
    """The picture, under "example".

    `tokens` are printable. `heads` is a list of `layer`, `head` and the matrices `gates` (of FoX,
    1 − f of each key), `position_weights` and `weights`, to three decimals; a matrix that the
    encoding does not have is None. A matrix is a list of rows, query i having the i + 1 keys up to
    itself. Only the last `length` tokens are there, `LARGEST` at most, of whatever the model read.

    Args:
        model: with any encoding; one with gates if `heads` is a class.
        task: whose test sequences are read.
        seed: is not used: all rows and seeds are asked the same.
        stop: whether to break off.
        length: of the sequence, where that is a setting of the task; the task's own if None.
        heads: "most position", "last layer", or a token class of the task.
        count: how many heads, at most.

    Raises:
        UsageError: the task has no such class, or a number is none that fits.
    """
    check(heads, count, task)
    if stop():
        return {}
    shown = LARGEST if length is None else min(length, LARGEST)
    rows = list(read(asked(task, length), 1 if heads in WITHOUT_CLASS else CHOICE))
    if heads in WITHOUT_CLASS:
        (tokens,) = rows
        seen = trace(model, tokens)
        chosen = by_position(seen) if heads == MOST_POSITION else of_last_layer(seen)
    else:
        member = token_classes(task)[heads]
        tokens = max(rows, key=lambda row: int(member[row].sum()))
        seen = trace(model, tokens)
        chosen = by_class(seen, member)
    chosen = chosen[:count]
    return {
        "example": {
            "tokens": [task.vocab[token] for token in tokens[-shown:].tolist()],
            "heads": [
                {"layer": number, "head": head, **matrices(seen.layers[number], head, shown)}
                for number, head in chosen
            ],
        }
    }


def reads(
    task: Task, *, length: int | None = None, heads: str = MOST_POSITION, count: int = 2
) -> Iterable[tuple[float, int]]:
    """One sequence."""
    yield 1.0, asked(task, length).max_length - 1


def asked(task: Task, length: int | None) -> Task:
    """The task at that length, or as it is."""
    return at_length(task, length) if has_length(task) else task


def check(heads: str, count: int, task: Task) -> None:
    """The settings have a meaning, or a `UsageError`."""
    if not is_whole(count, 1):
        raise UsageError(f"count must be a whole number of heads above 0, got {count!r}")
    if heads not in WITHOUT_CLASS and heads not in (classes := token_classes(task)):
        raise unknown("heads of the picture", heads, [*WITHOUT_CLASS, *classes])


def of_last_layer(seen: Trace) -> list[tuple[int, int]]:
    """Its heads in their order."""
    last = len(seen.layers) - 1
    return [(last, head) for head in range(len(seen.layers[last].weights))]


def by_position(seen: Trace) -> list[tuple[int, int]]:
    """Every layer and head, those that position moves most first."""
    moved = [spread(layer) for layer in seen.layers]
    if not any(bool(of_head.any()) for of_head in moved):
        moved = [-layer.weights.diagonal(dim1=1, dim2=2).mean(-1) for layer in seen.layers]
    return ranked(torch.stack(moved))


def by_class(seen: Trace, member: Tensor) -> list[tuple[int, int]]:
    """The layers and heads with gates, those that go most closely with a class first."""
    found = {}
    for number, layer in enumerate(seen.layers):
        counted = gates.counting(layer)
        if counted is None:
            continue
        sums = gates.Sums()
        sums.add(*counted, member[seen.tokens.cpu()].double()[None].to(counted[0].device))
        for head, statistics in enumerate(sums.statistics(["class"])):
            found[number, head] = abs(statistics["correlation"]["class"] or 0.0)
    return sorted(found, key=lambda place: -found[place])


def spread(layer: Layer) -> Tensor:
    """For each head the mean over queries of the term's standard deviation over the keys seen."""
    term = layer.term
    if term is None:
        return layer.weights.new_zeros(len(layer.weights))
    known = term.isfinite()
    number = known.sum(-1, keepdim=True).clamp(min=1)
    term = term.masked_fill(~known, 0)
    apart = (term - term.sum(-1, keepdim=True) / number).masked_fill(~known, 0)
    return (apart.square().sum(-1) / number[..., 0]).sqrt().mean(-1)


def ranked(of_heads: Tensor) -> list[tuple[int, int]]:
    """(layer, head) by falling number."""
    order = of_heads.flatten().argsort(descending=True, stable=True).tolist()
    return [divmod(place, of_heads.shape[1]) for place in order]


def matrices(layer: Layer, head: int, shown: int) -> dict[str, Any]:
    """What is drawn of a head."""
    counted = gates.counting(layer)
    return {
        "gates": None if counted is None else lower(counted[0], head, shown),
        "position_weights": lower(layer.position_weights, head, shown),
        "weights": lower(layer.weights, head, shown),
    }


def lower(matrix: Tensor | None, head: int, shown: int) -> list[list[float]] | None:
    """The end of a head's matrix (H, S, S) up to its diagonal, row by row, to three decimals."""
    if matrix is None:
        return None
    square = matrix[head].expand(matrix.shape[2], -1)[-shown:, -shown:]
    return [
        [round(number, 3) for number in row[: query + 1]]
        for query, row in enumerate(square.tolist())
    ]
