"""s_ij = scale · q_i·k_j + z_i[p_ij], p the sum of the gates from the key to the query."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from milepost.ops.reference.pairs import (
    content_logits,
    precise,
    scale_or_default,
    softmax_sum,
    suffix_sum,
    visible,
)
from milepost.ops.reference.relative import distance_logits


def content_and_positions(
    query: Float[Tensor, "B H S D"],
    key: Float[Tensor, "B G T D"],
    gate_keys: Float[Tensor, "B G T D"] | None,
    scale: float | None,
    gate_scale: float | None,
    seen: Bool[Tensor, "#B 1 S T"],
) -> tuple[Float[Tensor, "B H S T"], Float[Tensor, "B H S T"]]:
    """scale · q_i·k_j, and p_ij = Σ_{k=j}^{i} σ(gate_scale · q_i·g_k) over the keys seen."""
    scale = scale_or_default(scale, query)
    content = gate_logits = content_logits(query, key, scale)
    if gate_keys is not None or gate_scale not in (None, scale):
        gate_logits = content_logits(
            query,
            key if gate_keys is None else gate_keys,
            scale if gate_scale is None else gate_scale,
        )
    return content, suffix_sum(gate_logits.sigmoid().masked_fill(~seen, 0))


def interpolate(
    z: Float[Tensor, "B H S P"], position: Float[Tensor, "B H S T"]
) -> Float[Tensor, "B H S T"]:
    """z at a real position, from its values at the whole numbers on either side."""
    position = position.clamp(max=z.shape[-1] - 1)
    floor, ceil = position.detach().floor().long(), position.detach().ceil().long()
    return z.gather(-1, floor).lerp(z.gather(-1, ceil), position - floor)


def attend(
    query: Float[Tensor, "B H S D"],
    key: Float[Tensor, "B G T D"],
    value: Float[Tensor, "B G T V"],
    table: Float[Tensor, "... P D"],
    gate_keys: Float[Tensor, "B G T D"] | None,
    position_query: Float[Tensor, "B H S D"] | None,
    relative_table: Float[Tensor, "... R D"] | None,
    scale: float | None,
    gate_scale: float | None,
    position_scale: float,
    start: Int[Tensor, "B S"] | None,
) -> Float[Tensor, "B H S V"]:
    """CoPE: `milepost.ops.cope_attention`."""
    S, T = query.shape[2], key.shape[2]
    seen = visible(S, T, start, query.device)
    content, position = content_and_positions(query, key, gate_keys, scale, gate_scale, seen)
    if position_query is None:
        position_query = query
    z = position_scale * precise(position_query) @ precise(table).mT
    logits = content + interpolate(z, position)
    if relative_table is not None:
        logits = logits + distance_logits(position_query, relative_table, T)
    return softmax_sum(logits, seen, value)
