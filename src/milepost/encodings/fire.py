"""FIRE: a bias learned as a function of distance relative to the query's position.

Li et al. 2023, "Functional Interpolation for Relative Positions Improves Long Context
Transformers", arXiv 2310.04418, Sec. 3.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost import ops
from milepost.encoding import Encoding, Host, Operands, Positions
from milepost.errors import UsageError


def progress(distance: Tensor, index: Tensor, c: Tensor, threshold: Tensor) -> Tensor:
    """ψ(i − j) / ψ(max(L, i)), ψ(x) = log(c x + 1): (S, T) and i (..., S) -> (..., S, T).

    In [0, 1] for the keys of the query's own sequence. 10⁻⁶, the paper's code's, is for c or L
    at 0.
    """
    whole = (c * torch.maximum(index, threshold)).log1p() + 1e-6
    return (c * distance).log1p() / whole[..., None]


class Fire(Encoding):
    """s_ij = q_i·k_j / √D + f_θ(ψ(i − j) / ψ(max(L, i)))_h.

    f_θ is a network 1 → hidden → ReLU → H, c and L are learned: c from 0.1 and L from
    `threshold`, through a factor that starts at 1; both enter by their absolute value. So it is in
    the code of the paper's appendix, but for f_θ's last bias: softmax does not see what is added
    to all logits alike. i counts from 0 within a token's own sequence or document.

    The bias depends on i and j, not on i − j alone, and is dense: memory (B or 1, H, S, T) for
    each layer, `hidden` times that while it is made.

    Options:
        hidden: width of f_θ.
        threshold: L at the start.
        shared: one bias for all layers, the paper's FIRE-S; otherwise each layer has its own.
    """

    paper = "Li et al. 2023, arXiv 2310.04418"
    changes = "adds a learned function of (i − j) relative to i to the logits"
    op = staticmethod(ops.bias_attention)
    op_name = "bias"
    variants = ({"shared": True}, {"threshold": 4.0, "hidden": 5})

    def __init__(
        self, host: Host, *, hidden: int = 32, threshold: float = 512.0, shared: bool = False
    ) -> None:
        super().__init__(host)
        if hidden < 1:
            raise UsageError(f"hidden must be a whole number above 0, got {hidden}: 32 is usual")
        if threshold <= 0:
            raise UsageError(f"threshold must be above 0, got {threshold}: 512 is usual")
        self.threshold = threshold
        self.shared = shared
        # of shape (1,), as FSDP shards no scalars
        self.c = nn.Parameter(torch.tensor([0.1]))
        self.threshold_factor = nn.Parameter(torch.tensor([1.0]))
        self.inner = nn.Linear(1, hidden)
        self.outer = nn.Linear(hidden, host.heads, bias=False)

    @classmethod
    def stack(cls, host: Host, **options: Any) -> list[Encoding]:
        """A function of its own for each layer, unless `shared`."""
        if options.get("shared"):
            return [cls(host, **options)] * host.layers
        return [cls(host, **options) for _ in range(host.layers)]

    def bias(self, positions: Positions, dtype: torch.dtype) -> Tensor:
        """(B or 1, H, S, T) in `dtype`, fp32 at least: bf16 cannot tell distance 1000 from 1001."""
        index = positions.index
        keys = torch.arange(positions.end, device=index.device)
        distance = (keys[positions.first :, None] - keys).clamp(min=0)
        c, threshold, w_in, b_in, w_out = (
            parameter.to(dtype)
            for parameter in (
                self.c.abs(),
                (self.threshold * self.threshold_factor).abs(),
                self.inner.weight,
                self.inner.bias,
                self.outer.weight,
            )
        )
        with torch.autocast(index.device.type, enabled=False):
            share = progress(distance.to(dtype), index.to(dtype), c, threshold)
            hidden = F.linear(share[..., None], w_in, b_in).relu()
            bias = F.linear(hidden, w_out).movedim(-1, -3)
        return bias if bias.ndim == 4 else bias[None]

    def begin(self, x: Tensor, positions: Positions) -> tuple[Tensor, Any]:
        """The state is the bias of all layers, where they share one."""
        if not self.shared:
            return x, None
        return x, self.bias(positions, torch.promote_types(x.dtype, torch.float32))

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
        """Hand over the bias, dense."""
        if state is None:
            state = self.bias(positions, torch.promote_types(query.dtype, torch.float32))
        return Operands(query, {"key": key, "value": value}, {"bias": state})
