"""s_ij = scale · q_i·k_j, then softmax."""

from jaxtyping import Float, Int
from torch import Tensor

from milepost.ops.reference.pairs import content_logits, scale_or_default, softmax_sum, visible


def attend(
    query: Float[Tensor, "B H S D"],
    key: Float[Tensor, "B G T D"],
    value: Float[Tensor, "B G T V"],
    scale: float | None,
    start: Int[Tensor, "B S"] | None,
) -> Float[Tensor, "B H S V"]:
    """Plain attention: `milepost.ops.softmax_attention`."""
    logits = content_logits(query, key, scale_or_default(scale, query))
    seen = visible(query.shape[2], key.shape[2], start, query.device)
    return softmax_sum(logits, seen, value)
