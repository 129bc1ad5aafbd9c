"""Memory along time: what the layers keep of earlier tokens, so that decoding need not redo them.

A cache knows no encoding. It appends whatever tensors an encoding calls its memory, on the time
axis, and hands back the whole.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor


def running_sum(new: Tensor, before: Tensor | None) -> Tensor:
    """The sums of (B, H, S) up to each token, after the sums `before` of the tokens before."""
    total = new.cumsum(2, dtype=torch.float64)
    if before is None or not before.shape[2]:
        return total
    return total + before[:, :, -1:]


class Memory(Protocol):
    """What an attention layer asks of a cache: `LayerCache` here, another library's elsewhere."""

    def extend(
        self, new: Mapping[str, Tensor], sums: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """As in `LayerCache`."""

    def previous(self, name: str, tensor: Tensor) -> Tensor:
        """As in `LayerCache`."""


class LayerCache:
    """One layer's memory."""

    def __init__(self) -> None:
        self.memory: dict[str, Tensor] = {}
        self.newest: dict[str, Tensor] = {}

    def extend(
        self, new: Mapping[str, Tensor], sums: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Append tensors whose time is on axis 2, and return all that is remembered.

        Of `sums` the running sum over time is kept, in fp64, and new tokens go on from its end.
        """
        new = dict(new)
        for name, tensor in (sums or {}).items():
            new[name] = running_sum(tensor, self.memory.get(name))
        for name, tensor in new.items():
            old = self.memory.get(name)
            self.memory[name] = tensor if old is None else torch.cat((old, tensor), dim=2)
        return dict(self.memory)

    def previous(self, name: str, tensor: Tensor) -> Tensor:
        """Each token's predecessor on axis 2: the last one of the call before, or zeros."""
        first = self.newest.get(name)
        if first is None:
            first = torch.zeros_like(tensor[:, :, :1])
        self.newest[name] = tensor[:, :, -1:]
        return torch.cat((first, tensor[:, :, :-1]), dim=2)


class Cache:
    """All layers' memory, and how many tokens of how many rows they hold."""

    def __init__(self) -> None:
        self.layers: defaultdict[int, LayerCache] = defaultdict(LayerCache)
        self.length = 0
        self.batch: int | None = None  # until the first call
