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
from milepost.encodings.yarn import Yarn
from milepost.errors import UsageError, unknown

UPDATES = ("both", "attention", "mlp")
FORMS = {"tensor": 2, "vector": 1}
"""L, the left index of an e of four numbers in Eq. 8."""
INITIAL = ("rope", "yarn", "identity")


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

    The four numbers of an e are laid out in `rows` rows, between which W₁ and W₂ mix: 2, the left
    index of Eq. 8; 1 for L = 1 and D = 4, where W₂ diag(ψ) W₁ is a number; 4 for W₁ ∈ R^{B′×(L·D)},
    which mixes the right index too, and is not equivariant.
    """

    def __init__(self, host: Host, hidden: int, rows: int = 2) -> None:
        super().__init__()
        G, D = host.key_heads, host.head_dim
        self.gate = nn.Parameter(torch.randn(G, hidden, D) / math.sqrt(D))
        self.up = nn.Parameter(torch.randn(G, hidden, rows) / math.sqrt(rows))
        self.down = nn.Parameter(torch.zeros(G, rows, hidden))

    def forward(self, state: Tensor, aggregated: Tensor, attended: Tensor) -> Tensor:
        """The next state, from the state, Σ_j a_ij e_j and the heads' output (B, G, S, D)."""
        psi = F.silu(attended @ self.gate.mT)
        # One small matrix per token serves all frequencies: far smaller than W₁ ẽ.
        product = torch.einsum("glh,ghk,bgsh->bgslk", self.down, self.up, psi)
        laid_out = aggregated.reshape(*aggregated.shape[:3], product.shape[-1], -1)
        return state + (product.to(state.dtype) @ laid_out).view_as(aggregated)


class AttentionUpdate(nn.Module):
    """e ← e + r ẽ with ẽ_i = Σ_j a_ij e_j and one number r per head, 0 at the start.

    The released code's, and where Eq. 8 is left out the paper's as well.
    """

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.zeros(host.key_heads, 1, 1, 1, 1))

    def forward(self, state: Tensor, aggregated: Tensor, attended: Tensor) -> Tensor:
        """The next state; what the heads put out has no part in it."""
        return state + self.rate * aggregated


class ReleasedMLPUpdate(nn.Module):
    """z ← z + D diag(SiLU(X m)) U z across heads, m the MLP's output before the residual.

    U (`up`) is 0 at the start; D (`down`) and X (`gate`) are N(0, 0.02²). Not `equivariant`, real
    and imaginary part have a D and a U each.
    """

    def __init__(self, host: Host, hidden: int, equivariant: bool = True) -> None:
        super().__init__()
        parts = () if equivariant else (2,)
        self.gate = nn.Parameter(torch.randn(hidden, host.dim) * 0.02)
        self.up = nn.Parameter(torch.zeros(*parts, hidden, host.key_heads))
        self.down = nn.Parameter(torch.randn(*parts, host.key_heads, hidden) * 0.02)

    def forward(self, state: Tensor, hidden: Tensor) -> Tensor:
        """The next state, from the state and m (B, S, dim)."""
        opened = F.silu(F.linear(hidden, self.gate))
        d = "d" if self.up.ndim == 3 else ""
        mixing = torch.einsum(f"{d}gh,{d}hk,bsh->bs{d}gk", self.down, self.up, opened)
        return state + torch.einsum(f"bs{d}gk,bksldf->bgsldf", mixing.to(state.dtype), state)


def check_ablation(variant: str, update: str, equivariant: bool, form: str) -> None:
    """What is changed is there to be changed, or a `UsageError`."""
    if equivariant and form == "tensor":
        return
    changed = "form='vector'" if form == "vector" else "equivariant=False"
    if update == "attention":
        raise UsageError(
            f"{changed} changes Eq. 8, which update='attention' leaves out: choose one of the two"
        )
    if form == "vector" and variant == "released":
        raise UsageError(
            "form='vector' needs positions that are tensors, got variant='released', where one is "
            "a complex number: use variant='paper'"
        )
    if form == "vector" and not equivariant:
        raise UsageError(
            "equivariant=False mixes all L · D numbers, of which form='vector' would have no "
            "others: choose one of the two"
        )


def rotations(host: Host, base: float | None, initial: str, stretched: dict[str, Any]) -> Encoding:
    """What the positions are at first; `stretched` are YaRN's options, where not None."""
    given = {name: value for name, value in stretched.items() if value is not None}
    if initial != "yarn":
        if given:
            raise UsageError(
                f"{' and '.join(given)} only with initial='yarn', got initial={initial!r}: leave "
                f"out what stretches"
            )
        return Rope.of(host, base=base)
    if base is None and host.rope is not None:
        raise UsageError(
            "initial='yarn' turns by angles of its own, got a model that came with others: give "
            "base, the model's rope_theta"
        )
    return Yarn(host, **given, base=Rope.options()["base"] if base is None else base)


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
            Eq. 8, e ← e + r ẽ. For the paper's Table 6, as the next two.
        equivariant: False lets Eq. 8 mix all four numbers of an e, W₁ ∈ R^{B′×(L·D)}; in the
            released variant, real and imaginary part by maps of their own.
        form: "tensor", L = D = 2, or "vector", L = 1 and D = 4 in Eq. 8, which then adds a
            multiple of ẽ. In the paper's variant alone.
        hidden: B′, the width of the update; 48 in the paper.
        base: of RoPE's frequencies; None for 10000, as in the paper, or a pretrained model's own.
        initial: the positions that the first layer gets: "rope"; "yarn", for longer text than the
            model was trained on (the paper's Fig. 5); or "identity", the same for all tokens, for a
            model that knows positions from elsewhere (GPT-2's table). Weights fit all three.
        factor, original_length: as in `yarn`, with initial="yarn".
        random_shift: in training, shift all positions of a call by one random number from 0 to
            2 · max_length, as the released code does. By equivariance only rounding sees it.
    """

    paper = "Zhu et al. 2025, arXiv 2501.00712"
    changes = "rotates queries and keys by positions that every layer updates from the content"
    variants = (
        {"variant": "released"},
        {"initial": "identity"},
        {"equivariant": False},
        {"form": "vector"},
        {"update": "attention"},
        {"initial": "yarn", "factor": 2.0, "base": 500.0},
    )

    def __init__(
        self,
        host: Host,
        *,
        variant: str = "paper",
        update: str = "both",
        equivariant: bool = True,
        form: str = "tensor",
        hidden: int = 48,
        base: float | None = None,
        initial: str = "rope",
        factor: float | None = None,
        original_length: int | None = None,
        random_shift: bool = False,
    ) -> None:
        super().__init__(host)
        for name, given, known in (
            ("variant", variant, ("paper", "released")),
            ("update", update, UPDATES),
            ("form", form, FORMS),
            ("initial", initial, INITIAL),
        ):
            if given not in known:
                raise unknown(name, given, known)
        check_ablation(variant, update, equivariant, form)
        if hidden < 1:
            raise UsageError(f"hidden must be a whole number above 0, got {hidden}: 48 is usual")
        self.variant = variant
        self.random_shift = random_shift
        self.initial = initial
        stretched = {"factor": factor, "original_length": original_length}
        self.rope = rotations(host, base, initial, stretched)
        self.after_attention: PaperUpdate | AttentionUpdate | None = None
        self.after_mlp: ReleasedMLPUpdate | None = None
        self.aggregates = update != "mlp"
        if update == "attention" or (variant == "released" and update == "both"):
            self.after_attention = AttentionUpdate(host)
        elif variant == "paper":
            rows = 4 if not equivariant else FORMS[form]
            self.after_attention = PaperUpdate(host, hidden, rows)
        if variant == "released" and update != "attention":
            self.after_mlp = ReleasedMLPUpdate(host, hidden, equivariant)

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
        most = 2 * self.host.max_length
        shift = torch.randint(most + 1, (), device=index.device)
        return positions.renumbered(index + shift, positions.bound + most)

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
