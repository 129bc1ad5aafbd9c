"""T5's relative bias: one learned number per head for each bucket of distances.

Raffel et al. 2019, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer", arXiv 1910.10683, Sec. 2.1; buckets as in the authors' Mesh TensorFlow code.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from milepost import ops
from milepost.encoding import Encoding, Host, Operands, Positions
from milepost.errors import UsageError


def buckets(distance: Tensor, count: int, max_distance: int) -> Tensor:
    """The bucket of each distance ≥ 0, of `count` in all, unidirectional.

    A bucket each for distances below E = count // 2, then the other count − E buckets at equal
    steps of log distance: E + ⌊log(d/E) / log(max_distance/E) · (count − E)⌋. The last one also
    holds every distance from max_distance on.
    """
    exact = count // 2
    # Below E the branch is not taken; the clamp keeps it finite
    far = (distance.clamp(min=exact).double() / exact).log() / math.log(max_distance / exact)
    # 1e-9, so that rounding does not put a distance at which a bucket begins into the one before
    far = exact + (far * (count - exact) + 1e-9).long()
    return torch.where(distance < exact, distance, far.clamp(max=count - 1))


class T5(Encoding):
    """s_ij = scale · q_i·k_j + b[h, bucket(i − j)], b shared by all layers.

    T5 itself does not divide by √D: it starts W_q that much smaller instead. Here W_q starts at
    the usual size, and so the logits are divided; `scale=1.0` is T5's own. b starts at N(0, 1/dim),
    as in Hugging Face transformers. TAPE's baseline has a table for each layer and 64 buckets.

    Options:
        buckets: how many.
        max_distance: from here on all distances are one.
        scale: of q·k; None for 1/√D.
    """

    paper = "Raffel et al. 2019, arXiv 1910.10683"
    changes = "adds a learned b[bucket(i − j)] to the logits"
    op = staticmethod(ops.bias_attention)
    op_name = "bias"
    variants = ({"scale": 1.0}, {"buckets": 6, "max_distance": 12})

    def __init__(
        self,
        host: Host,
        *,
        buckets: int = 32,
        max_distance: int = 128,
        scale: float | None = None,
    ) -> None:
        super().__init__(host)
        if buckets < 2:
            raise UsageError(f"buckets must be a whole number above 1, got {buckets}")
        if max_distance <= buckets // 2:
            raise UsageError(
                f"max_distance must be above half the buckets, of which each holds one distance, "
                f"got max_distance={max_distance} for {buckets} buckets: raise it, or take fewer"
            )
        if scale is not None and scale <= 0:
            raise UsageError(f"scale must be above 0, or None for 1/√head_dim, got {scale}")
        self.max_distance = max_distance
        self.scale = scale
        self.table = nn.Parameter(torch.randn(host.heads, buckets) * host.dim**-0.5)

    def begin(self, x: Tensor, positions: Positions) -> tuple[Tensor, Any]:
        """The state is the bias (H, end)."""
        distance = torch.arange(positions.end, device=x.device)
        return x, self.table[:, buckets(distance, self.table.shape[1], self.max_distance)]

    def encode(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        x: Tensor,
        positions: Positions,
        state: Any,
    ) -> Operands:
        """Hand over the bias and the scale."""
        params = {"bias": state, "scale": self.scale}
        return Operands(query, {"key": key, "value": value}, params)
