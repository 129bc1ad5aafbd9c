"""The Forgetting Transformer: a gate on each token lets older ones fade.

Lin, Nikishin, He, Courville 2025, "Forgetting Transformer: Softmax Attention with a Forget
Gate", arXiv 2503.02130.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost import ops
from milepost.encoding import Encoding, Host, Operands, Positions
from milepost.errors import UsageError


class NotBelowZero(torch.autograd.Function):
    """max(x, 0), whose gradient at 0 and below can raise x, and never lowers it.

    With the gradient of a clamp, an x that once stepped below would never come back; with that of
    the identity, it would go ever further down.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        """The larger of x and 0."""
        return x.clamp(min=0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Keep x."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """What descending along it would lower is left out where x is not above 0."""
        (x,) = ctx.saved_tensors
        return torch.where((x > 0) | (grad < 0), grad, 0)


class Fox(Encoding):
    """f_t = σ(w_f·x_t + b_f), s_ij = q_i·k_j / √D + Σ_{l=j+1}^{i} log f_l.

    One gate for each query head and token, from the attention's input. The FoX *Pro* block
    (QK-norm, token shift of keys and values, output norm and gate) is not part of the encoding:
    it is four settings of the model, which any encoding may use.

    Implementations start differently: the authors' and flash-linear-attention's with b_f = 0
    (f ≈ 0.5, so that a token has faded to 1/1000 after ten others), x-transformers' with b_f = 5
    (f ≈ 0.993).

    Options:
        bias: b_f at the start.
        std: standard deviation of w_f at the start; 0.02 in the authors' code.
        strength: None for the paper's gates. A number makes them f^α, α ≥ 0 learned for each head
            from that number: from 0 a model forgets nothing at first, and yet learns to, which
            σ near 1 would not. So FoX is added to a model that was trained without it.
    """

    paper = "Lin et al. 2025, arXiv 2503.02130"
    changes = "adds the log of the forget gates between key and query"
    cached = ("key", "value", "decay")
    op = staticmethod(ops.forgetting_attention)
    op_name = "forgetting"
    per_layer = True
    variants = ({"strength": 0.5},)

    def __init__(
        self, host: Host, *, bias: float = 0.0, std: float = 0.02, strength: float | None = None
    ) -> None:
        super().__init__(host)
        if std < 0:
            raise UsageError(f"std must not be negative, got {std}: 0.02 is usual")
        self.gate = nn.Linear(host.dim, host.heads)
        nn.init.normal_(self.gate.weight, std=std)
        nn.init.constant_(self.gate.bias, bias)
        self.strength: nn.Parameter | None = None
        if strength is not None:
            if strength < 0:
                raise UsageError(
                    f"strength must not be negative, or tokens would grow with age, got "
                    f"{strength}: 0 forgets nothing at first"
                )
            self.strength = nn.Parameter(torch.full((host.heads,), float(strength)))

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
        """Compute the new tokens' gates, (B, H, S), in fp32 at least."""
        logits = self.gate(x).mT
        log_f = F.logsigmoid(logits.to(torch.promote_types(logits.dtype, torch.float32)))
        if self.strength is not None:
            # torch has no annotation of `apply`
            power: Tensor = NotBelowZero.apply(self.strength)  # type: ignore[no-untyped-call]
            log_f = log_f * power.to(log_f.dtype)[:, None]
        return Operands(query, {"key": key, "value": value}, sums={"decay": log_f})
