"""Attention with a learned vector per token distance, on the keys."""

from torch import Tensor

from milepost.ops import dispatch
from milepost.shapes import check_attention, check_table, parameter


def relative_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    table: Tensor,
    *,
    scale: float | None = None,
    start: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Relative position encoding on keys (Shaw et al. 2018, Eq. 4; CoPE paper, Eq. 1).

        s_ij = scale · q_i·k_j + q_i·e[min(i − j, P)]

    The position term is unscaled, as in `cope_attention`; Shaw's own form, which scales both, is
    `table * scale`. With every gate at 1, CoPE counts i − j + 1, so that
    `cope_attention(..., table)` is then `relative_attention(..., table[1:])`.

    Args:
        query, key, value, scale, start, backend: as in `softmax_attention`.
        table: e, (P + 1, D) shared by the heads or (H, P + 1, D); its last row stands for every
            distance past its end.

    Returns:
        (B, H, S, V) in the dtype of `value`.

    Raises:
        UsageError: a shape, dtype or device does not fit, or the named backend refuses.
    """
    check_attention(query, key, value, start, scale=scale)
    table = parameter("table", table, query)
    check_table("table", table, query)
    return dispatch.run(
        "relative",
        backend,
        query=query,
        key=key,
        value=value,
        table=table,
        scale=scale,
        start=start,
    )
