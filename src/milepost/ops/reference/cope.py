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
    gate_query: Float[Tensor, "B H S D"],
    gate_keys: Float[Tensor, "B G T D"] | None,
    scale: float | None,
    gate_scale: float | None,
    seen: Bool[Tensor, "#B 1 S T"],
) -> tuple[Float[Tensor, "B H S T"], Float[Tensor, "B H S T"]]:
    """scale · q_i·k_j, and p_ij = Σ_{k=j}^{i} σ(gate_scale · q_i·g_k) over the keys seen.

    `gate_query` is q in the gates of `gate_keys`; without these, gates see q_i·k_j itself.
    """
    scale = scale_or_default(scale, query)
    gate_scale = scale if gate_scale is None else gate_scale
    content = gate_logits = content_logits(query, key, scale)
    if gate_keys is not None:
        gate_logits = content_logits(gate_query, gate_keys, gate_scale)
    elif gate_scale != scale:
        gate_logits = content_logits(query, key, gate_scale)
    return content, suffix_sum(gate_logits.sigmoid() * seen)


def interpolate(
    z: Float[Tensor, "B H S P"], position: Float[Tensor, "B H S T"]
) -> Float[Tensor, "B H S T"]:
    """z at a real position, from its values at the whole numbers on either side."""
    position = position.clamp(max=z.shape[-1] - 1)
    whole = position.detach().nan_to_num()  # NaN must come out as NaN, not fail as an index
    floor, ceil = whole.floor(), whole.ceil()
    below, above = z.gather(-1, floor.long()), z.gather(-1, ceil.long())
    return below + (position - floor) * (above - below)


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
    if position_query is None:
        position_query = query
    content, position = content_and_positions(
        query, key, position_query, gate_keys, scale, gate_scale, seen
    )
    z = position_scale * precise(position_query) @ precise(table).mT
    logits = content + interpolate(z, position)
    if relative_table is not None:
        logits = logits + distance_logits(position_query, relative_table, T)
    return softmax_sum(logits, seen, value)
