"""s_ij = scale · q_i·k_j + q_i·e[min(i − j, P)], then softmax."""

from jaxtyping import Float, Int
from torch import Tensor

from milepost.ops.reference.pairs import (
    content_logits,
    distances,
    precise,
    scale_or_default,
    softmax_sum,
    visible,
)


def distance_logits(
    query: Float[Tensor, "B H S D"], table: Float[Tensor, "... P D"], T: int
) -> Float[Tensor, "B H S T"]:
    """q_i·e[min(i − j, P)]."""
    at_distance = precise(query) @ precise(table).mT
    row = distances(query.shape[2], T, query.device).clamp(0, table.shape[-2] - 1)
    return at_distance.gather(-1, row.expand(*query.shape[:3], T))


def attend(
    query: Float[Tensor, "B H S D"],
    key: Float[Tensor, "B G T D"],
    value: Float[Tensor, "B G T V"],
    table: Float[Tensor, "... P D"],
    scale: float | None,
    start: Int[Tensor, "B S"] | None,
) -> Float[Tensor, "B H S V"]:
    """Relative attention: `milepost.ops.relative_attention`."""
    S, T = query.shape[2], key.shape[2]
    logits = content_logits(query, key, scale_or_default(scale, query))
    logits = logits + distance_logits(query, table, T)
    return softmax_sum(logits, visible(S, T, start, query.device), value)
