"""What there is to see of a layer, whatever its encoding: up to four arrays over pairs of tokens.

    gates        what a query makes of each token on the way: counts it (CoPE), has it forget (FoX),
                 lets it take of the stick (stick-breaking); how far its place has moved (TAPE)
    positions    where that puts a key
    attention    a_ij
    alone        attention by position alone, the largest of each query at 1, as in Figure 4 of the
                 CoPE paper (Golovneva et al. 2024, arXiv 2405.18719)

What an encoding does not have is left out: no token-based encoding has gates, and where position
rotates or breaks it has no weights of its own. The page, the figures and the statistics show these,
under these names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from milepost.look.layer import Layer, suffix_sum
from milepost.look.trace import Trace

NAMES = ("gates", "positions", "attention", "alone")
Unit = Literal["share", "count", "cosine", "tokens"]


@dataclass(frozen=True)
class Shown:
    """One array of one layer.

    Attributes:
        title: what it is, in a few words.
        symbol: what the papers write.
        unit: "share" is from 0 to 1, "cosine" from −1 to 1, "count" the sum of the layer's gates
            from key to query, and "tokens" the distance i − j.
        make: computes the array, (H, S, S), 0 where a query does not see a key.
        largest: what a count stops at, if it does.
    """

    title: str
    symbol: str
    unit: Unit
    make: Callable[[], Float[Tensor, "H S S"]]
    largest: float | None = None


def shown(trace: Trace) -> tuple[dict[str, Shown], ...]:
    """The arrays of every layer, by name; they are computed when they are asked for."""
    return tuple(_of_layer(layer, trace.layers[0]) for layer in trace.layers)


def _of_layer(layer: Layer, first: Layer) -> dict[str, Shown]:
    found: dict[str, Shown] = {}

    def show(name: str, title: str, symbol: str, unit: Unit, make: Callable[..., Tensor]) -> None:
        largest = layer.p_max if unit == "count" else None
        found[name] = Shown(title, symbol, unit, partial(make, layer), largest)

    if layer.op.startswith("cope"):
        show("gates", "counted", "g_ij", "share", lambda layer: layer.gates)
        show("positions", "position", "p_ij", "count", lambda layer: layer.positions)
    elif layer.op == "forgetting":
        show("gates", "forgotten at the key", "1 − f_j", "share", forgotten)
        show(
            "positions",
            "what is left of the key",
            "exp(Λ_i − Λ_j)",
            "share",
            lambda x: x.decay.exp(),
        )
    elif layer.op == "stick_breaking":
        show("gates", "taken of what is left", "β_ij", "share", taken)
        show("positions", "what is left of the stick", "Π_{k ≥ j} (1 − β_ik)", "share", left)
    elif layer.places is not None:
        if isinstance(layer.state, Tensor):
            moving = partial(moved, first=first)
            symbol = "min(1, ‖e_j − e⁰_j‖ / ‖e⁰_j‖)"
            show("gates", "moved since layer 0", symbol, "share", moving)
        show("positions", "alike in place", "⟨e_i, e_j⟩ / (‖e_i‖ ‖e_j‖)", "cosine", alike)
    else:
        show("positions", "distance", "i − j", "tokens", distance)
    show("attention", "attention", "a_ij", "share", lambda layer: layer.weights)
    if layer.has_term:
        title = "attention by position alone"
        show("alone", title, "exp(z_ij − max_k z_ik)", "share", lambda x: x.position_weights)
    return found


def forgotten(layer: Layer) -> Float[Tensor, "H S S"]:
    """1 − f_j of FoX, the same for all queries."""
    gates = layer.forget_gates
    assert gates is not None, "only FoX has them"
    return (1 - gates)[:, None] * layer.visible


def taken(layer: Layer) -> Float[Tensor, "H S S"]:
    """β_ij = σ(s_ij) of stick-breaking attention."""
    return layer.logits.sigmoid()


def left(layer: Layer) -> Float[Tensor, "H S S"]:
    """What is left of the stick once key j has had its share."""
    breaks = F.softplus(layer.logits, threshold=40)
    return (-suffix_sum(breaks)).exp() * layer.visible


def alike(layer: Layer) -> Float[Tensor, "H S S"]:
    """The cosine of the places of query and key, the same for the query heads of a group."""
    places = layer.places
    assert places is not None, "only RoPE and TAPE have them"
    places = F.normalize(places, dim=-1)
    return _for_heads(places @ places.mT, layer) * layer.visible


def moved(layer: Layer, first: Layer) -> Float[Tensor, "H S S"]:
    """How far the place of key j is from that of the first layer, and at most 1."""
    return movement(layer, first)[:, None].clamp(max=1) * layer.visible


def movement(layer: Layer, first: Layer) -> Float[Tensor, "H S"]:
    """‖e_j − e⁰_j‖ / ‖e⁰_j‖ of TAPE, however far."""
    places, before = layer.places, first.places
    assert places is not None, "only TAPE moves them"
    assert before is not None, "only TAPE moves them"
    return _for_heads((places - before).norm(dim=-1) / before.norm(dim=-1), layer)


def distance(layer: Layer) -> Float[Tensor, "H S S"]:
    """i − j, the same for all heads."""
    return _for_heads(layer.distance[None].to(layer["query"].dtype), layer) * layer.visible


def _for_heads(array: Tensor, layer: Layer) -> Tensor:
    """Of each key head, or one for all, to each of the heads."""
    return array.repeat_interleave(layer["query"].shape[1] // len(array), dim=0)
