"""The only attention layer: project, encode, attend, read. It asks no encoding for its name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from milepost import ops
from milepost.cache import Memory
from milepost.encoding import Encoding, Host, Positions
from milepost.errors import UsageError


@dataclass(frozen=True, eq=False)
class Call:
    """What one layer's attention was asked, and what it said, as an encoding's observer is told.

    Attributes:
        encoding: of the layer.
        op: the encoding's, or hard attention.
        arguments: of the op, by name, but for the backend.
        attended: what the op returned.
        state: the encoding's, from the layer below.
    """

    encoding: Encoding
    op: Callable[..., Any]
    arguments: Mapping[str, Any]
    attended: Any
    state: Any


def hard_op(encoding: Encoding) -> Callable[..., Any]:
    """Hard attention in place of the encoding's op, which must be plain softmax attention."""
    if encoding.op is not Encoding.op:
        raise UsageError(
            f"hard_attention takes the one value with the largest logit of plain attention, got an "
            f"encoding that {encoding.changes}, by an op of its own: choose one whose op is "
            f"softmax attention, as absolute and rope, or leave hard_attention out"
        )
    return ops.hard_attention


def attend(
    encoding: Encoding,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    x: Tensor,
    positions: Positions,
    state: Any,
    cache: Memory,
    backend: str,
    hard: bool = False,
) -> tuple[Tensor, Any]:
    """Encode, remember, attend, read: the heads' output (B, H, S, D) and the encoding's state.

    Args:
        encoding: of this layer.
        query: (B, H, S, D) of the new tokens, and key and value (B, G, S, D).
        key: see `query`.
        value: see `query`.
        x: the layer's input (B, S, dim), which the encoding may look at.
        positions: of the new tokens.
        state: the encoding's, from the layer below.
        cache: the layer's memory of earlier tokens.
        backend: of the op.
        hard: attend to one key alone (`hard_attention`), where the op is softmax attention.
    """
    operands = encoding.encode(query, key, value, x=x, positions=positions, state=state)
    arguments = {
        "query": operands.query,
        **cache.extend(operands.memory, operands.sums),
        **operands.params,
        "start": positions.start,
    }
    op = hard_op(encoding) if hard else encoding.op
    attended = op(**arguments, backend=backend)
    if encoding.observer is not None:
        encoding.observer(Call(encoding, op, arguments, attended, state))
    return encoding.read(attended, operands=operands, state=state)


class HeadNorm(nn.Module):
    """RMS normalisation of each head's vector, with weights of its own for each head.

    x_h ← x_h / √(mean(x_h²) + eps) · w_h        x (B, H, S, D), w (H, D)
    """

    def __init__(self, heads: int, head_dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(heads, head_dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise over the last axis, in fp32 at least."""
        precise = x.to(torch.promote_types(x.dtype, torch.float32))
        normed = precise * torch.rsqrt(precise.square().mean(-1, keepdim=True) + self.eps)
        return (normed * self.weight[:, None]).to(x.dtype)


class TokenShift(nn.Module):
    """Mix each token's vector with its predecessor's, by a gate from the token (FoX Pro, Eq. 9).

    y_t = α_t ỹ_{t−1} + (1 − α_t) ỹ_t,   α_t = σ(w_h·x_t),   ỹ_{−1} = 0
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, heads, bias=False)

    def forward(self, x: Tensor, projected: Tensor, previous: Tensor) -> Tensor:
        """Mix `projected` (B, G, S, D) with `previous`, the same one token earlier."""
        alpha = self.gate(x).sigmoid().mT[..., None]
        return alpha * previous + (1 - alpha) * projected


class Attention(nn.Module):
    """Multi-head attention around an encoding.

    Optional parts, all of the FoX Pro block: `qk_norm`, RMS norm of queries and keys; `kv_shift`,
    a token shift of keys and values before it; `output_norm`, RMS norm of each head's output;
    `output_gate`, a sigmoid gate from the token on that output. With `hard` each head attends to
    one key alone.
    """

    def __init__(
        self,
        host: Host,
        *,
        bias: bool,
        qk_norm: bool = False,
        kv_shift: bool = False,
        output_norm: bool = False,
        output_gate: bool = False,
        hard: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.host = host
        self.hard = hard
        self.backend = backend
        width, key_width = host.heads * host.head_dim, host.key_heads * host.head_dim
        self.query = nn.Linear(host.dim, width, bias=bias)
        self.key = nn.Linear(host.dim, key_width, bias=bias)
        self.value = nn.Linear(host.dim, key_width, bias=bias)
        self.output = nn.Linear(width, host.dim, bias=bias)
        self.key_shift = TokenShift(host.dim, host.key_heads) if kv_shift else None
        self.value_shift = TokenShift(host.dim, host.key_heads) if kv_shift else None
        self.query_norm = HeadNorm(host.heads, host.head_dim, 1e-5) if qk_norm else None
        self.key_norm = HeadNorm(host.key_heads, host.head_dim, 1e-5) if qk_norm else None
        self.output_norm = HeadNorm(host.heads, host.head_dim, 1e-6) if output_norm else None
        self.output_gate = nn.Linear(host.dim, width, bias=False) if output_gate else None

    def forward(
        self,
        x: Tensor,
        encoding: Encoding,
        positions: Positions,
        state: Any,
        cache: Memory,
        backend: str | None = None,
    ) -> tuple[Tensor, Any]:
        """X (B, S, dim) and the encoding's state -> the layer's output (B, S, dim), state.

        `backend` replaces the layer's own for this call.
        """
        query, key, value = self.project(x, positions, cache)
        out, state = attend(
            encoding,
            query,
            key,
            value,
            x=x,
            positions=positions,
            state=state,
            cache=cache,
            backend=backend or self.backend,
            hard=self.hard,
        )
        if self.output_norm is not None:
            out = self.output_norm(out)
        out = out.transpose(1, 2).flatten(2)
        if self.output_gate is not None:
            out = out * self.output_gate(x).sigmoid()
        return self.output(out), state

    def project(
        self, x: Tensor, positions: Positions, cache: Memory
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Query (B, H, S, D), key and value (B, G, S, D) of the new tokens."""
        query, key, value = (
            part(x).unflatten(-1, (-1, self.host.head_dim)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        if self.key_shift is not None and self.value_shift is not None:
            # A document's first token has no predecessor, whatever stands before it.
            inside = (positions.index > 0).to(x.dtype)[..., None]
            if inside.ndim == 3:
                inside = inside[:, None]
            key = self.key_shift(x, key, inside * cache.previous("key", key))
            value = self.value_shift(x, value, inside * cache.previous("value", value))
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        return query, key, value
