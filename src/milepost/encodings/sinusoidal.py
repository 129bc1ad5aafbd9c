"""Sinusoidal absolute positions: sines and cosines of the place, added to the embedding.

Vaswani et al. 2017, "Attention Is All You Need", arXiv 1706.03762, Sec. 3.5.
"""

import math
from typing import Any

import torch
from torch import Tensor

from milepost.encoding import Encoding, Host, Positions
from milepost.errors import UsageError


def sinusoids(index: Tensor, dim: int, base: float) -> Tensor:
    """PE(index) in fp64: integers (...) -> (..., dim)."""
    power = torch.arange(0, dim, 2, dtype=torch.float64, device=index.device) / -dim
    angle = index[..., None] * base**power
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)


class Sinusoidal(Encoding):
    """x_n ← √dim · x_n + PE(n), PE(n, 2i) = sin(n / base^(2i/dim)), PE(n, 2i + 1) = cos(the same).

    The factor √dim is the paper's (Sec. 3.4). Embeddings start at N(0, 1/dim), so that without it
    the sinusoids, of size 1, would drown them. Many ports leave it out (TAPE's baseline does:
    `embedding_scale=1`), or put all sines before all cosines (tensor2tensor and DeepMind's code of
    randomised positions), which is the same up to an order of features. Angles are taken in fp64.

    Options:
        base: of the geometric series of wavelengths, 2π to base · 2π; 10000 in the paper.
        embedding_scale: factor on the embedding; √dim if None.
    """

    paper = "Vaswani et al. 2017, arXiv 1706.03762"
    changes = "adds sines and cosines of the position to the embedding"
    variants = ({"embedding_scale": 1.0},)

    def __init__(
        self, host: Host, *, base: float = 10_000.0, embedding_scale: float | None = None
    ) -> None:
        super().__init__(host)
        if host.dim % 2:
            raise UsageError(
                f"sinusoidal positions pair a sine with a cosine, so dim must be even, "
                f"got {host.dim}: choose another dim"
            )
        if base <= 0:
            raise UsageError(f"base must be above 0, got {base}: 10000 is usual")
        if embedding_scale is not None and embedding_scale <= 0:
            raise UsageError(
                f"embedding_scale must be above 0, or None for √dim, got {embedding_scale}"
            )
        self.base = base
        self.embedding_scale = math.sqrt(host.dim) if embedding_scale is None else embedding_scale

    def begin(self, x: Tensor, positions: Positions) -> tuple[Tensor, Any]:
        """Scale the embedding and add the sinusoids."""
        waves = sinusoids(positions.index, self.host.dim, self.base)
        return x * self.embedding_scale + waves.to(x.dtype), None
