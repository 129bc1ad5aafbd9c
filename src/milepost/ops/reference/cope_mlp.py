"""s_ij = scale · q_i·k_j + q_i·mlp(p_ij), p the sum of the gates from the key to the query."""

from jaxtyping import Float, Int
from torch import Tensor

from milepost.ops.reference.cope import content_and_positions
from milepost.ops.reference.pairs import precise, softmax_sum, visible


def attend(
    query: Float[Tensor, "B H S D"],
    key: Float[Tensor, "B G T D"],
    value: Float[Tensor, "B G T V"],
    weight_in: Float[Tensor, " N"],
    bias_in: Float[Tensor, " N"],
    weight_out: Float[Tensor, "N D"],
    gate_keys: Float[Tensor, "B G T D"] | None,
    scale: float | None,
    gate_scale: float | None,
    max_position: float | None,
    start: Int[Tensor, "B S"] | None,
) -> Float[Tensor, "B H S V"]:
    """CoPE with a network: `milepost.ops.cope_mlp_attention`."""
    seen = visible(query.shape[2], key.shape[2], start, query.device)
    content, position = content_and_positions(query, key, query, gate_keys, scale, gate_scale, seen)
    if max_position is not None:
        position = position.clamp(max=max_position)
    logits = content
    # One hidden unit at a time: all at once would take N times the memory of the logits. With
    # gradients it takes that anyway, since autograd keeps every unit's positions for the backward.
    share = precise(query) @ precise(weight_out).mT  # [B, H, S, N]
    for n, (weight, bias) in enumerate(zip(precise(weight_in), precise(bias_in), strict=True)):
        logits = logits + (weight * position + bias).relu() * share[..., n : n + 1]
    return softmax_sum(logits, seen, value)
