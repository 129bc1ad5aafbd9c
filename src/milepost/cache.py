"""Memory along time: what the layers keep of earlier tokens, so that decoding need not redo them.

A cache knows no encoding. It appends whatever tensors an encoding calls its memory, on the time
axis, and hands back the whole.
"""

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor


class LayerCache:
    """One layer's memory."""

    def __init__(self) -> None:
        self.memory: dict[str, Tensor] = {}
        self.newest: dict[str, Tensor] = {}

    def extend(self, new: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Append tensors whose time is on axis 2, and return all that is remembered."""
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
