"""s_ij = scale · q_i·k_j + b, then softmax."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from milepost.ops.reference.pairs import (
    content_logits,
    distances,
    precise,
    scale_or_default,
    softmax_sum,
    visible,
)


def biased_sum(
    logits: Float[Tensor, "B H S T"],
    bias: Float[Tensor, "..."],
    seen: Bool[Tensor, "#B 1 S T"],
    value: Float[Tensor, "B G T V"],
) -> Float[Tensor, "B H S V"]:
    """Σ_j softmax_j(s_ij + b_ij) v_j, b a table (H, N) over distances or dense."""
    if bias.ndim == 2:
        S, T = logits.shape[2:]
        bias = bias[:, distances(S, T, logits.device).clamp(0, bias.shape[1] - 1)]
    # A row that −inf hides altogether is a row that sees no key, not one that sees them all
    return softmax_sum(logits + precise(bias), seen & (bias != float("-inf")), value)


def attend(
    query: Float[Tensor, "B H S D"],
    key: Float[Tensor, "B G T D"],
    value: Float[Tensor, "B G T V"],
    bias: Float[Tensor, "..."],
    scale: float | None,
    start: Int[Tensor, "B S"] | None,
) -> Float[Tensor, "B H S V"]:
    """Attention with a bias table or a dense bias: `milepost.ops.bias_attention`."""
    S, T = query.shape[2], key.shape[2]
    logits = content_logits(query, key, scale_or_default(scale, query))
    return biased_sum(logits, bias, visible(S, T, start, query.device), value)
