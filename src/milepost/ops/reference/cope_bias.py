"""s_ij = scale · q_i·k_j + z_i[p_ij] + b, p the sum of the gates from the key to the query."""

from jaxtyping import Float, Int
from torch import Tensor

from milepost.ops.reference.bias import biased_sum
from milepost.ops.reference.cope import content_and_positions, interpolate
from milepost.ops.reference.pairs import precise, visible


def attend(
    query: Float[Tensor, "B H S D"],
    key: Float[Tensor, "B G T D"],
    value: Float[Tensor, "B G T V"],
    table: Float[Tensor, "... P D"],
    bias: Float[Tensor, "..."],
    gate_keys: Float[Tensor, "B G T D"] | None,
    scale: float | None,
    gate_scale: float | None,
    position_scale: float,
    start: Int[Tensor, "B S"] | None,
) -> Float[Tensor, "B H S V"]:
    """CoPE beside a bias: `milepost.ops.cope_bias_attention`."""
    seen = visible(query.shape[2], key.shape[2], start, query.device)
    content, position = content_and_positions(query, key, query, gate_keys, scale, gate_scale, seen)
    z = position_scale * precise(query) @ precise(table).mT
    return biased_sum(content + interpolate(z, position), bias, seen, value)
