"""xPos: RoPE with an exponential decay over distance, slower for slower pairs.

Sun et al. 2022, "A Length-Extrapolatable Transformer", arXiv 2212.10554, Algorithm 1.
"""

import math
from typing import Any

import torch
from torch import Tensor

from milepost.encoding import Host, Operands, Positions
from milepost.encodings.rope import Rope, rotate, rotation
from milepost.errors import UsageError


def zeta(head_dim: int, gamma: float) -> Tensor:
    """ζ_f = (2f/D + γ) / (1 + γ) for pairs f = 0 … D/2 − 1, fp64."""
    fraction = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    return (fraction + gamma) / (1 + gamma)


class Xpos(Rope):
    """q_n ← ζ^(n/B) R_n q_n and k_m ← ζ^(−m/B) R_m k_m, so that pair f decays by ζ_f^((n − m)/B).

    The product depends on n − m alone, the two scales on n and m: they grow without bound, one up
    and one down. Any constant may be taken from both n and m. The released code takes half the
    length of the text at hand, and scales all keys anew at every step; here it is half of
    `max_length`, once and for all, so that cached keys stay right. Scales up to √ of the largest
    number of the dtype are allowed, which leaves activations the other half of its range; longer
    text is refused. That is 18000 tokens either way from the middle in fp32 and bf16, and 2200
    in fp16. Scaling a floating number costs no precision, so none is lost up to there.

    The paper's blockwise causal attention for inference is not part of this: set the model's
    `window`. TAPE's baseline takes B = 2048.

    Options:
        gamma: γ; 0.4 in the paper.
        scale_base: B; 512 in the released code. A larger one decays more slowly.
        base: as in `rope`.
    """

    paper = "Sun et al. 2022, arXiv 2212.10554"
    changes = "rotates queries and keys, and lets their product decay"

    def __init__(
        self,
        host: Host,
        *,
        gamma: float = 0.4,
        scale_base: float = 512.0,
        base: float = 10_000.0,
    ) -> None:
        super().__init__(host, base=base)
        if gamma <= 0:
            raise UsageError(f"gamma must be above 0, got {gamma}: the paper takes 0.4")
        if scale_base <= 0:
            raise UsageError(f"scale_base must be above 0, got {scale_base}: 512 is usual")
        self.gamma = gamma
        self.scale_base = scale_base
        self.centre = host.max_length // 2

    def reach(self, dtype: torch.dtype) -> int:
        """How many tokens from the centre the scales stay within √ of the dtype's largest."""
        steepest = math.log((1 + self.gamma) / self.gamma) / self.scale_base
        return int(math.log(torch.finfo(dtype).max) / 2 / steepest)

    def begin(self, x: Tensor, positions: Positions) -> tuple[Tensor, Any]:
        """The state is (cos, sin) for queries and for keys, scales included."""
        angle = positions.index[..., None] * self.frequencies(x.device)
        cos, sin = rotation(angle, torch.float64)
        step = (positions.index[..., None] - self.centre) / self.scale_base
        scale = (zeta(self.host.head_dim, self.gamma).to(x.device) ** step).reshape(cos.shape)
        precise = torch.promote_types(x.dtype, torch.float32)
        for_query = (cos * scale).to(precise), (sin * scale).to(precise)
        for_key = (cos / scale).to(precise), (sin / scale).to(precise)
        return x, (for_query, for_key)

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
        """Rotate and scale queries and keys."""
        reach = self.reach(query.dtype)
        if max(self.centre, positions.bound - 1 - self.centre) > reach:
            raise UsageError(
                f"xpos scales keys and queries apart, and {query.dtype} holds that for {reach} "
                f"tokens on either side of max_length / 2 = {self.centre}, got "
                f"{positions.bound} tokens: raise scale_base (now {self.scale_base:g}), or set "
                f"max_length to the length of the text"
            )
        for_query, for_key = state
        return Operands(rotate(query, *for_query), {"key": rotate(key, *for_key), "value": value})
