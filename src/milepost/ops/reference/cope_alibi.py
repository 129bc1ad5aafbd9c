"""s_ij = scale · q_i·k_j + m_h · p_ij, p the sum of the gates from the key to the query."""

from jaxtyping import Float, Int
from torch import Tensor

from milepost.ops.reference.cope import content_and_positions
from milepost.ops.reference.pairs import precise, softmax_sum, visible


def attend(
    query: Float[Tensor, "B H S D"],
    key: Float[Tensor, "B G T D"],
    value: Float[Tensor, "B G T V"],
    slopes: Float[Tensor, " H"],
    gate_keys: Float[Tensor, "B G T D"] | None,
    scale: float | None,
    gate_scale: float | None,
    start: Int[Tensor, "B S"] | None,
) -> Float[Tensor, "B H S V"]:
    """CoPE with slopes: `milepost.ops.cope_alibi_attention`."""
    seen = visible(query.shape[2], key.shape[2], start, query.device)
    content, position = content_and_positions(query, key, query, gate_keys, scale, gate_scale, seen)
    logits = content + precise(slopes)[:, None, None] * position
    return softmax_sum(logits, seen, value)
