"""Rotary position embedding: queries and keys are rotated by angles proportional to position.

Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding",
arXiv 2104.09864, Eqs. 14 and 15.
"""

from typing import Any

import torch
from torch import Tensor

from milepost.encoding import Encoding, Host, Operands, Positions
from milepost.errors import UsageError


def rotation(angle: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of angles (S, D/2) or (B, S, D/2), as (1 or B, 1, S, D/2) in `dtype`."""
    if angle.ndim == 2:
        angle = angle[None]
    angle = angle[:, None]
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x_f, x_{f + D/2}) of (B, H, S, D) by its angle.

    The pairing of halves is GPT-NeoX's and Llama's; the paper pairs neighbours, which is the
    same up to a fixed permutation of the features that the projections learn.
    """
    low, high = x.to(cos.dtype).chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, low * sin + high * cos), dim=-1).to(x.dtype)


def check_factor(factor: float) -> None:
    """`factor`, how many times longer the text becomes, is at least 1, or a `UsageError`."""
    if not factor >= 1:
        raise UsageError(
            f"factor must be at least 1, got {factor}: it is the length to reach over the length "
            f"trained on, and 1 is plain rope"
        )


class Rope(Encoding):
    """q_i ← R_i q_i and k_j ← R_j k_j, so that q_i·k_j depends on i − j alone.

    R_n turns the pair f of features by n · θ_f, θ_f = base^(−2f/D). Angles are computed in fp64
    and kept in fp32 at least: bf16 cannot tell position 1000 from 1001.

    Options:
        base: of the geometric series of frequencies; 10000 in the paper.
    """

    paper = "Su et al. 2021, arXiv 2104.09864"
    changes = "rotates queries and keys"

    def __init__(self, host: Host, *, base: float = 10_000.0) -> None:
        super().__init__(host)
        if host.head_dim % 2:
            raise UsageError(
                f"rotary encodings turn pairs of features, so head_dim must be even, "
                f"got {host.head_dim}: choose another head_dim"
            )
        if base <= 0:
            raise UsageError(f"base must be above 0, got {base}: 10000 is usual")
        self.base = base

    @classmethod
    def of(cls, host: Host, **options: Any) -> Encoding:
        """The rotation that another encoding builds on: the host's own, unless options are given.

        An option of None is not given.
        """
        given = {name: value for name, value in options.items() if value is not None}
        return Rope(host, **given) if given or host.rope is None else host.rope()

    @classmethod
    def stack(cls, host: Host, **options: Any) -> list[Encoding]:
        """One object for all layers: for plain RoPE the host's own, unless a base is given."""
        if cls is Rope:
            return [cls.of(host, **options)] * host.layers
        return super().stack(host, **options)

    def frequencies(self, device: torch.device) -> Tensor:
        """θ_f in radians per token, (D/2,), fp64.

        Not a buffer: a model that is cast to bf16 casts its buffers.
        """
        D = self.host.head_dim
        return self.base ** (torch.arange(0, D, 2, dtype=torch.float64, device=device) / -D)

    def begin(self, x: Tensor, positions: Positions) -> tuple[Tensor, Any]:
        """The state is (cos, sin), made once for all layers."""
        angle = positions.index[..., None] * self.frequencies(x.device)
        return x, rotation(angle, torch.promote_types(x.dtype, torch.float32))

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
        """Rotate queries and keys."""
        return Operands(rotate(query, *state), {"key": rotate(key, *state), "value": value})
