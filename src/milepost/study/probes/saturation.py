"""How much of what CoPE sees stands at p_max, where positions no longer tell keys apart.

Positions p_ij = min(Σ_{k=j}^{i} g_ik, p_max) stop at the end of their table (Golovneva et al. 2024,
arXiv 2405.18719, Eqs. 4 and 5): the paper takes p_max = 64 for text of 1024 tokens, trusting gates
to count few of them. By the length of the sequences,

    share             of the pairs j ≤ i those with p_ij ≥ p_max, the mean over layers and heads
    largest share     the same of the head that has most
    count             Σ_j g_ij, the most that query i counts, the mean over queries and heads
    largest count     the same of the head that counts most
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from milepost.look import Layer, at_length, read, trace
from milepost.model import Decoder
from milepost.tasks.task import Task

Found = dict[str, dict[str, Any]]


def measure(
    model: Decoder,
    task: Task,
    *,
    seed: int,
    stop: Callable[[], bool],
    lengths: Sequence[int] = (),
    factors: Sequence[float] = (1,),
    sequences: int = 8,
) -> Found:
    """The four by length, "256", or its factor, "x2". Layers without positions have no part.

    Args:
        model: of the CoPE family; of any other, nothing is found. Without a p_max both shares are
            None.
        task: whose test sequences are read.
        seed: is not used: all rows and seeds are asked the same.
        stop: whether to break off.
        lengths: of the sequences, as the task's setting.
        factors: the same in the task's own length.
        sequences: how many of each length.

    Raises:
        UsageError: the task has no such setting.
    """
    found: Found = {}
    for key, longer in asked(task, lengths, factors).items():
        shares, counts = [], []  # (layers · heads,) of each sequence
        for tokens in read(longer, sequences):
            if stop():
                return {}
            layers = trace(model, tokens).layers
            shares += joined([layer.saturation for layer in layers])
            counts += joined([all_counted(layer) for layer in layers])
        if counts:
            count = torch.stack(counts).mean(0)
            share = torch.stack(shares).mean(0) if shares else None
            found[key] = {
                "share": None if share is None else float(share.mean()),
                "largest share": None if share is None else float(share.max()),
                "count": float(count.mean()),
                "largest count": float(count.max()),
            }
    return found


def reads(
    task: Task,
    *,
    lengths: Sequence[int] = (),
    factors: Sequence[float] = (1,),
    sequences: int = 8,
) -> Iterable[tuple[float, int]]:
    """The sequences of each length, each once."""
    for longer in asked(task, lengths, factors).values():
        yield float(sequences), longer.max_length - 1


def asked(task: Task, lengths: Sequence[int], factors: Sequence[float]) -> dict[str, Task]:
    """The task at each length, by what it is called."""
    by_factor = {
        f"x{factor:g}": None if factor == 1 else round(factor * task.max_length)
        for factor in factors
    }
    named = {**{str(length): length for length in lengths}, **by_factor}
    return {key: at_length(task, length) for key, length in named.items()}


def all_counted(layer: Layer) -> Tensor | None:
    """For each head the mean over queries of Σ_j g_ij over all keys."""
    gates = layer.gates
    return None if gates is None else gates.sum(-1).mean(-1)


def joined(of_layers: list[Tensor | None]) -> list[Tensor]:
    """The heads of all layers that have any as one tensor, or nothing."""
    known = [of_heads for of_heads in of_layers if of_heads is not None]
    return [torch.cat(known)] if known else []
