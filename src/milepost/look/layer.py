"""One layer's attention, written out over all pairs of tokens.

    s_ij = scale · q_i·k_j + term_ij,    a_ij = softmax_j(s_ij)

The term is what an encoding adds: z_i[p_ij] (CoPE), m · p_ij (CoPE-ALiBi), q_i·mlp(p_ij)
(CoPE-MLP), Λ_i − Λ_j (FoX), q_i·e[i − j] (relative), b[i − j] (ALiBi, T5, Kerple, FIRE), or two of
these. Alone it gives "attention by position" as in Figure 4 of the CoPE paper (Golovneva et al.
2024, arXiv 2405.18719). Stick-breaking attention has no softmax, a_ij = exp(s_ij − Σ_{k≥j}
softplus(s_ik)), and hard attention the largest s_ij alone. `milepost.ops` has all these equations.

Here they are made from what the layer handed to its op, and nothing is kept but that: each array is
computed when it is asked for, so that a long text takes the memory of one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from milepost.errors import UsageError

COUNTING = ("cope", "cope_alibi", "cope_bias", "cope_mlp")
OPS = (*COUNTING, "bias", "forgetting", "hard", "relative", "softmax", "stick_breaking")


@dataclass(frozen=True, eq=False)
class Layer:
    """What one layer did with one row of S tokens.

    Arrays over pairs are (H, S, S), query before key, in the model's precision and fp32 at least. A
    pair that the query does not see has −inf in `logits`, `term` and `decay`, and 0 elsewhere.
    What an encoding does not have is None.

    Attributes:
        op: the name of the op in `milepost.ops`.
        operands: the op's own, as it was called, for a batch of one.
        output: (H, S, V), what the op returned.
        state: the encoding's as it reached this layer: RoPE's (cos, sin), TAPE's positions e.
    """

    op: str
    operands: Mapping[str, Any]
    output: Float[Tensor, "H S V"]
    state: Any

    @property
    def seen(self) -> Bool[Tensor, "#H S S"]:
        """Which keys a query attends to: of the visible those that no bias of −inf hides."""
        bias = self["bias"]
        return self.visible if bias is None else self.visible & (self._bias != -math.inf)

    @property
    def visible(self) -> Bool[Tensor, "1 S S"]:
        """Which keys take part in a query's row: none that come later, none before its `start`."""
        distance, start = self.distance, self["start"]
        itself = self.op != "stick_breaking" or self["attend_current"]
        visible = distance >= (0 if itself else 1)
        if start is not None:
            visible &= torch.arange(len(distance), device=distance.device) >= start[0, :, None]
        return visible[None]

    @property
    def distance(self) -> Int[Tensor, "S S"]:
        """i − j in tokens."""
        place = torch.arange(self["query"].shape[2], device=self["query"].device)
        return place[:, None] - place

    @property
    def logits(self) -> Float[Tensor, "H S S"]:
        """s_ij: every term, as it enters the softmax; in stick-breaking attention, σ."""
        logits, added = self.content(self["key"]), self._added
        logits = logits if added is None else logits + added
        return logits.masked_fill(~self.seen, -math.inf)

    @property
    def weights(self) -> Float[Tensor, "H S S"]:
        """a_ij, the attention weights. Rows sum to 1; in stick-breaking attention, to less."""
        logits, seen = self.logits, self.seen
        if self.op == "stick_breaking":
            breaks = F.softplus(logits, threshold=40).masked_fill(~seen, 0)
            return (logits - suffix_sum(breaks)).exp()
        if self.op == "hard":
            return (F.one_hot(logits.argmax(-1), len(logits[0])) * seen).to(self._dtype)
        return logits.masked_fill(~seen.any(-1, keepdim=True), 0).softmax(-1) * seen

    @property
    def remainder(self) -> Float[Tensor, "H S"] | None:
        """1 − Σ_j a_ij, what stick-breaking attention leaves of the stick."""
        if self.op != "stick_breaking":
            return None
        return (-F.softplus(self.logits, threshold=40).sum(-1)).exp()

    @property
    def gates(self) -> Float[Tensor, "H S S"] | None:
        """g_ij in [0, 1] of the CoPE family: how much query i counts key j."""
        if self.op not in COUNTING:
            return None
        given, scale = self["gate_keys"], self["gate_scale"]
        if given is None:
            logits = self.content(self["key"], scale)
        else:
            logits = self.content(given, scale, self._position_query)
        return logits.sigmoid() * self.visible

    @property
    def counts(self) -> Float[Tensor, "H S S"] | None:
        """Σ_{k=j}^{i} g_ik, however large."""
        gates = self.gates
        return None if gates is None else suffix_sum(gates) * self.visible

    @property
    def p_max(self) -> float | None:
        """The largest position; None where there is none."""
        if self.op in ("cope", "cope_bias"):
            return float(self["table"].shape[-2] - 1)
        return self["max_position"] if self.op == "cope_mlp" else None

    @property
    def positions(self) -> Float[Tensor, "H S S"] | None:
        """p_ij = min(Σ_{k=j}^{i} g_ik, p_max) of the CoPE family."""
        counts = self.counts
        return counts if counts is None or self.p_max is None else counts.clamp(max=self.p_max)

    @property
    def saturated(self) -> Bool[Tensor, "H S S"] | None:
        """Which of the visible keys stand at p_max, where positions no longer tell them apart."""
        if self.p_max is None or (counts := self.counts) is None:
            return None
        return (counts >= self.p_max) & self.visible

    @property
    def saturation(self) -> Float[Tensor, " H"] | None:
        """The share of the visible pairs that stand at p_max."""
        saturated = self.saturated
        if saturated is None:
            return None
        return saturated.sum((1, 2), dtype=self._dtype) / self.visible.sum((1, 2))

    @property
    def key_saturation(self) -> Float[Tensor, "H S"] | None:
        """For each key, the share of the queries seeing it for which it stands at p_max."""
        saturated = self.saturated
        if saturated is None:
            return None
        return saturated.sum(1, dtype=self._dtype) / self.visible.sum(1)

    @property
    def decay(self) -> Float[Tensor, "H S S"] | None:
        """Λ_i − Λ_j ≤ 0 of FoX, the log of what the gates between leave of a key."""
        if self.op != "forgetting":
            return None
        summed = self["decay"][0]  # in fp64: differences of long sums
        faded = (summed[:, :, None] - summed[:, None]).to(self._dtype)
        return faded.masked_fill(~self.seen, -math.inf)

    @property
    def forget_gates(self) -> Float[Tensor, "H S"] | None:
        """f_t in [0, 1] of FoX."""
        if self.op != "forgetting":
            return None
        return self["decay"][0].diff(prepend=self["decay"][0, :, :1] * 0).exp().to(self._dtype)

    @property
    def has_term(self) -> bool:
        """Whether position adds something to the logits."""
        given = ("bias", "decay", "relative_table")
        return self.op in (*COUNTING, "relative") or any(self[name] is not None for name in given)

    @property
    def term(self) -> Float[Tensor, "H S S"] | None:
        """What position adds to the logits. None where it adds nothing, but rotates or breaks."""
        added = self._added
        return None if added is None else added.masked_fill(~self.seen, -math.inf)

    @property
    def position_weights(self) -> Float[Tensor, "H S S"] | None:
        """Attention by position alone: softmax_j(term_ij), over its largest in each row."""
        term = self.term
        if term is None:
            return None
        largest = term.amax(-1, keepdim=True)
        return (term - largest.masked_fill(largest == -math.inf, 0)).exp()

    @property
    def places(self) -> Float[Tensor, "#G S X"] | None:
        """The vectors e_i that RoPE and TAPE turn queries and keys by, for each key head.

        (cos, sin) of RoPE and its kind, the same for all heads and layers; TAPE's e ∈ R^{2×2} of
        every frequency. They are known by the shape of the state: a pair of (1, 1, S, D/2), or one
        tensor of six axes with time on the third.
        """
        if isinstance(self.state, tuple) and all(isinstance(part, Tensor) for part in self.state):
            vectors = torch.cat(self.state, dim=-1)[0]
        elif isinstance(self.state, Tensor) and self.state.ndim == 6:
            vectors = self.state[0].flatten(2)
        else:
            return None
        return vectors.to(self._dtype)

    @property
    def place_products(self) -> Float[Tensor, "#G S S"] | None:
        """⟨e_i, e_j⟩ = Σ_f tr(e_i e_jᵀ): what no rotation of all places can change."""
        places = self.places
        return None if places is None else places @ places.mT

    def content(
        self, keys: Tensor, scale: float | None = None, query: Tensor | None = None
    ) -> Float[Tensor, "H S S"]:
        """scale · q_i·k_j, the scale being the op's unless given, and 1/√D without one."""
        query = self["query"] if query is None else query
        keys = keys.repeat_interleave(query.shape[1] // keys.shape[1], dim=1)
        scale = self["scale"] if scale is None else scale
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        return scale * (query @ keys.mT)[0]

    def __getitem__(self, name: str) -> Any:
        """An operand, in fp32 at least; None if the op was not given it."""
        operand = self.operands.get(name)
        if isinstance(operand, Tensor) and operand.is_floating_point():
            return operand.to(torch.promote_types(operand.dtype, self._dtype))
        return operand

    @property
    def _dtype(self) -> torch.dtype:
        return torch.promote_types(self.operands["query"].dtype, torch.float32)

    @property
    def _position_query(self) -> Tensor:
        given = self["position_query"]
        return self["query"] if given is None else given

    @property
    def _bias(self) -> Float[Tensor, "#H S S"]:
        """A bias, dense or a table over distances, for every pair."""
        bias: Tensor = self["bias"]
        return self._at_distance(bias) if bias.ndim == 2 else bias[0]

    @property
    def _added(self) -> Tensor | None:
        """The term, whatever it is where a query does not see."""
        parts: list[Tensor] = []
        positions = self.positions
        if positions is not None:
            parts.append(self._of_positions(positions))
        table = self["table"] if self.op == "relative" else self["relative_table"]
        if table is not None:
            parts.append(self._at_distance(self._meeting(table)))
        if self["bias"] is not None:
            parts.append(self._bias)
        if (decay := self.decay) is not None:
            parts.append(decay)
        return sum(parts[1:], start=parts[0]) if parts else None

    def _of_positions(self, positions: Float[Tensor, "H S S"]) -> Float[Tensor, "H S S"]:
        """What the CoPE family makes of p_ij."""
        if self.op == "cope_alibi":
            return self["slopes"][:, None, None] * positions
        if self.op == "cope_mlp":
            share = self["query"][0] @ self["weight_out"].mT
            units = zip(self["weight_in"], self["bias_in"], share.unbind(-1), strict=True)
            return sum(  # one at a time
                ((w * positions + b).relu() * u[..., None] for w, b, u in units),
                start=torch.zeros_like(positions),
            )
        return interpolate(self["position_scale"] * self._meeting(self["table"]), positions)

    def _meeting(self, table: Tensor) -> Float[Tensor, "H S P"]:
        """q_i·e[p] for every row of a table (P, D) or (H, P, D)."""
        return self._position_query[0] @ table.mT

    def _at_distance(self, row: Tensor) -> Float[Tensor, "H S S"]:
        """Of (H, P) or (H, S, P) the entry at min(i − j, P − 1)."""
        distance = self.distance.clamp(0, row.shape[-1] - 1)
        if row.ndim == 2:
            return row[:, distance]
        return row.gather(-1, distance.expand(len(row), -1, -1))


def suffix_sum(x: Float[Tensor, "H S S"]) -> Float[Tensor, "H S S"]:
    """Σ_{k ≥ j} x_ik."""
    return x.flip(-1).cumsum(-1).flip(-1)


def interpolate(
    z: Float[Tensor, "H S P"], position: Float[Tensor, "H S S"]
) -> Float[Tensor, "H S S"]:
    """z at real positions, linearly between the whole numbers on either side."""
    floor = position.floor()
    below, above = z.gather(-1, floor.long()), z.gather(-1, position.ceil().long())
    return below + (position - floor) * (above - below)


def check_finite(layer: Layer, place: str) -> None:
    """A `UsageError` where a model is broken, as by weights that have overflown."""
    for name in layer.operands:
        given = layer[name]
        if not isinstance(given, Tensor) or not given.is_floating_point():
            continue
        # a bias of −inf hides a key
        if (
            given.isnan().any()
            or given.eq(math.inf).any()
            or (name != "bias" and given.isinf().any())
        ):
            raise UsageError(
                f"{name} of {place} must be finite to be shown, got NaN or infinity: look for "
                f"where the model's weights, or its encoding, come to that"
            )
