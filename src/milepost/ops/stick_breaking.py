"""Stick-breaking attention: a stick is broken at each key from the newest on (Tan et al. 2024)."""

from torch import Tensor

from milepost.ops import dispatch
from milepost.shapes import check_attention


def stick_breaking_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attend_current: bool = False,
    scale: float | None = None,
    start: Tensor | None = None,
    skip: bool = True,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Stick-breaking attention (arXiv 2410.17980), in log space.

        β_ij = σ(s_ij),   s_ij = scale · q_i·k_j
        a_ij = β_ij · Π_{j<k<i} (1 − β_ik) = exp(s_ij − Σ_{k=j}^{i−1} softplus(s_ik))
        remainder_i = 1 − Σ_j a_ij = exp(−Σ_j softplus(s_ij))

    Nothing normalises: what no key takes is the remainder, and the caller says what becomes of
    it. Keys j < i take part; with `attend_current` j = i does too.

    Args:
        query, key, value, scale, start, backend: as in `softmax_attention`.
        attend_current: whether a token may attend to itself. The paper excludes it, so that the
            first token attends to nothing and its remainder is 1.
        skip: whether a fused backend may leave out keys once less than 2⁻²⁴ of the stick is
            left. The remainder is then what was left when it stopped.

    Returns:
        The output (B, H, S, V) in the dtype of `value`, and the remainder (B, H, S) in fp32
        (fp64 for fp64 queries).

    Raises:
        UsageError: a shape, dtype or device does not fit, or the named backend refuses.
    """
    check_attention(query, key, value, start, scale=scale)
    return dispatch.run(
        "stick_breaking",
        backend,
        query=query,
        key=key,
        value=value,
        attend_current=attend_current,
        scale=scale,
        start=start,
        skip=skip,
    )
