"""TAPE: rotary positions that every layer updates from the content.

Zhu et al. 2025, "Rethinking Addressing in Language Models via Contextualized Equivariant
Positional Encoding", arXiv 2501.00712, Eqs. 6 to 8.

Each token has, for every head and every frequency f of RoPE, a position e[f] ∈ R^{2×2}. Its left
index runs over the pair of features with that frequency; O(2) acts on its right index.

    q̃[f] = e[f]ᵀ q[f],  k̃[f] = e[f]ᵀ k[f]           the logit q̃_i·k̃_j contains e_i e_jᵀ    (Eq. 6)
    ẽ_i = Σ_j a_ij e_j                               a_ij, the head's attention weights    (Eq. 7)
    e_i ← e_i + W₂ diag(ψ(x̃_i)) W₁ ẽ_i               x̃_i, the head's attention output      (Eq. 8)

Replacing every e by e R, R ∈ O(2), leaves the logits as they are and replaces every later e by
e R (Eqs. 4 and 5). A shift of all positions is such an R. The released code is another model:
`docs/decisions/tape-paper-and-code.md` compares the two.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.encoding import Encoding, Host, Operands, Positions
from milepost.encodings.rope import Rope
from milepost.errors import UsageError, unknown

UPDATES = ("both", "attention", "mlp")


def matrices(state: Tensor) -> Tensor:
    """The positions (B, G, S, 2, 2, D/2), left index first, from a state that may be narrower.

    The released variant has rotations times a length only, and keeps the first of two rows.
    """
    if state.shape[3] == 2:
        return state
    cos, sin = state.unbind(dim=4)
    return torch.cat((state, torch.stack((-sin, cos), dim=4)), dim=3)


def turn(x: Tensor, positions: Tensor) -> Tensor:
    """x̃[f] = e[f]ᵀ x[f] of (B, H, S, D), where H / G heads share the positions of each of G."""
    grouped = torch.unflatten(x.to(positions.dtype), 1, (positions.shape[1], -1))
    low, high = grouped[..., None, :].chunk(2, dim=-1)
    first, second = positions[:, :, None].unbind(dim=4)
    return (low * first + high * second).flatten(-2).flatten(1, 2).to(x.dtype)


class PaperUpdate(nn.Module):
    """e ← e + W₂ diag(ψ(x̃)) W₁ ẽ with ψ(x̃) = SiLU(A x̃), one W₁, W₂ and A per key head.

    As in LoRA, whose start the paper follows, W₂ (`down`) is 0 and the others are Gaussian.
    """

    def __init__(self, host: Host, hidden: int) -> None:
        super().__init__()
        G, D = host.key_heads, host.head_dim
        self.gate = nn.Parameter(torch.randn(G, hidden, D) / math.sqrt(D))
        self.up = nn.Parameter(torch.randn(G, hidden, 2) / math.sqrt(2))
        self.down = nn.Parameter(torch.zeros(G, 2, hidden))

    def forward(self, state: Tensor, aggregated: Tensor, attended: Tensor) -> Tensor:
        """The next state, from the state, Σ_j a_ij e_j and the heads' output (B, G, S, D)."""
        psi = F.silu(attended @ self.gate.mT)
        # One 2×2 matrix per token serves all frequencies: far smaller than W₁ ẽ.
        product = torch.einsum("glh,ghk,bgsh->bgslk", self.down, self.up, psi)
        return state + (product.to(state.dtype) @ aggregated.flatten(-2)).view_as(aggregated)


class ReleasedAttentionUpdate(nn.Module):
    """z ← z + r p with p_i = Σ_j a_ij z_j and one number r per head, 0 at the start."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.zeros(host.key_heads, 1, 1, 1, 1))

    def forward(self, state: Tensor, aggregated: Tensor, attended: Tensor) -> Tensor:
        """The next state; what the heads put out has no part in it."""
        return state + self.rate * aggregated


class ReleasedMLPUpdate(nn.Module):
    """z ← z + D diag(SiLU(X m)) U z across heads, m the MLP's output before the residual.

    U (`up`) is 0 at the start; D (`down`) and X (`gate`) are N(0, 0.02²).
    """

    def __init__(self, host: Host, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.randn(hidden, host.dim) * 0.02)
        self.up = nn.Parameter(torch.zeros(hidden, host.key_heads))
        self.down = nn.Parameter(torch.randn(host.key_heads, hidden) * 0.02)

    def forward(self, state: Tensor, hidden: Tensor) -> Tensor:
        """The next state, from the state and m (B, S, dim)."""
        opened = F.silu(F.linear(hidden, self.gate))
        mixing = torch.einsum("gh,hk,bsh->bsgk", self.down, self.up, opened)
        return state + torch.einsum("bsgk,bksldf->bgsldf", mixing.to(state.dtype), state)


class Tape(Encoding):
    """RoPE whose rotations each layer turns into what the next layer needs.

    The state is (B, G, S, rows, 2, D/2) in fp32 at least: both rows of each e, or in the released
    variant the one row (cos, sin) that determines a rotation times a length. It starts as RoPE's
    rotations, and a fresh model is RoPE exactly. To be attention-weighted with the very weights of
    the values, the state goes through the attention beside them, in their dtype: the cached
    "value" is value ‖ state, 3 · head_dim wide (released: 2 · head_dim).

    Positions belong to key heads. With grouped heads the query heads of a group are turned by the
    same e, and ẽ and x̃ are means over the group.

    The last layer updates nothing: no layer would read it, and its parameters would have no
    gradient.

    Options:
        variant: "paper", Eqs. 6 to 8, or "released", the authors' code.
        update: "both"; "mlp" is without the aggregation of Eq. 7 (ẽ = e); "attention" is without
            Eq. 8, which only the released variant can be. For the paper's Table 6.
        hidden: B′, the width of the update; 48 in the paper.
        base: of RoPE's frequencies; None for 10000, as in the paper, or a pretrained model's own.
        initial: the positions that the first layer gets: "rope", or "identity", the same for all
            tokens, for a model that knows positions from elsewhere (GPT-2's table).
        random_shift: in training, shift all positions of a call by one random number from 0 to
            2 · max_length, as the released code does. By equivariance only rounding sees it.
    """

    paper = "Zhu et al. 2025, arXiv 2501.00712"
    changes = "rotates queries and keys by positions that every layer updates from the content"
    variants = ({"variant": "released"}, {"initial": "identity"})

    def __init__(
        self,
        host: Host,
        *,
        variant: str = "paper",
        update: str = "both",
        hidden: int = 48,
        base: float | None = None,
        initial: str = "rope",
        random_shift: bool = False,
    ) -> None:
        super().__init__(host)
        if variant not in ("paper", "released"):
            raise unknown("variant", variant, ("paper", "released"))
        if update not in UPDATES:
            raise unknown("update", update, UPDATES)
        if variant == "paper" and update == "attention":
            raise UsageError(
                "update='attention' has no meaning in the paper's equations, where only Eq. 8 is "
                "zero at the start: use update='both' or 'mlp', or variant='released'"
            )
        if initial not in ("rope", "identity"):
            raise unknown("initial", initial, ("rope", "identity"))
        if hidden < 1:
            raise UsageError(f"hidden must be a whole number above 0, got {hidden}: 48 is usual")
        self.variant = variant
        self.random_shift = random_shift
        self.initial = initial
        self.rope = Rope.of(host, base=base)
        self.after_attention: PaperUpdate | ReleasedAttentionUpdate | None = None
        self.after_mlp: ReleasedMLPUpdate | None = None
        self.aggregates = update != "mlp"
        if variant == "paper":
            self.after_attention = PaperUpdate(host, hidden)
        else:
            if update != "mlp":
                self.after_attention = ReleasedAttentionUpdate(host)
            if update != "attention":
                self.after_mlp = ReleasedMLPUpdate(host, hidden)

    @classmethod
    def stack(cls, host: Host, **options: Any) -> list[Encoding]:
        """An encoding for each layer; the last one has no update."""
        *moving, last = (cls(host, **options) for _ in range(host.layers))
        last.after_attention = last.after_mlp = None
        last.aggregates = False
        return [*moving, last]

    def begin(self, x: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        """The state is RoPE's: e_n[f] is such that e_n[f]ᵀ turns a pair of features by n · θ_f."""
        if self.random_shift and self.training:
            positions = self.shifted(positions)
        _, (cos, sin) = self.rope.begin(x, positions)
        if self.initial == "identity":
            cos, sin = torch.ones_like(cos), torch.zeros_like(sin)
        state = torch.stack((cos, sin), dim=-2)[:, :, :, None]
        if self.variant == "paper":
            state = matrices(state)
        return x, state.expand(x.shape[0], self.host.key_heads, -1, -1, -1, -1)

    def shifted(self, positions: Positions) -> Positions:
        """The same positions, all moved by one random number."""
        if positions.first:
            raise UsageError(
                "random_shift draws a new shift at every call, so that cached positions would not "
                "fit new ones: call .eval() on the model before decoding with a cache"
            )
        index = positions.index
        shift = torch.randint(2 * self.host.max_length + 1, (), device=index.device)
        return positions.renumbered(index + shift)

    def encode(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        x: Tensor,
        positions: Positions,
        state: Tensor,
    ) -> Operands:
        """Turn queries and keys, and set the positions beside the values."""
        turning = matrices(state)
        if self.aggregates:
            value = torch.cat((value, state.flatten(3).to(value.dtype)), dim=-1)
        return Operands(turn(query, turning), {"key": turn(key, turning), "value": value})

    def read(self, attended: Tensor, *, operands: Operands, state: Tensor) -> tuple[Tensor, Tensor]:
        """Take the positions from beside the values, and update the state by them."""
        if self.after_attention is None:
            return attended, state
        D = self.host.head_dim
        mean = torch.unflatten(attended, 1, (self.host.key_heads, -1)).mean(dim=2)
        aggregated = mean[..., D:].reshape(state.shape) if self.aggregates else state
        state = self.after_attention(state, aggregated.to(state.dtype), mean[..., :D])
        return attended[..., :D], state

    def carry(self, state: Tensor, hidden: Tensor) -> Tensor:
        """Update the state once more in the released variant."""
        return state if self.after_mlp is None else self.after_mlp(state, hidden)
