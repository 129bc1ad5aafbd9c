"""Contextual position encoding: positions are sums of gates (Golovneva et al. 2024).

The four ops of this file count alike, and differ in what they do with the count:

    g_ij = σ(gate_scale · q_i·g_j)          gate keys g_j are the keys, unless given     (Eq. 3)
    p_ij = Σ_{k=j}^{i} g_ik                 from the key up to and including the query   (Eq. 4)
"""

from torch import Tensor

from milepost.errors import UsageError
from milepost.ops import dispatch
from milepost.ops.bias import check_bias
from milepost.shapes import (
    check_attention,
    check_floating,
    check_number,
    check_shape,
    check_table,
    parameter,
    shape,
)


def check_gate_keys(gate_keys: Tensor | None, query: Tensor, key: Tensor) -> None:
    """`gate_keys` has the shape of `key`, or is absent."""
    if gate_keys is not None:
        check_floating(query=query, gate_keys=gate_keys)
        check_shape(
            "gate_keys", gate_keys, tuple(key.shape), axes="(batch, key heads, keys, head_dim)"
        )


def cope_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    table: Tensor,
    *,
    gate_keys: Tensor | None = None,
    position_query: Tensor | None = None,
    relative_table: Tensor | None = None,
    scale: float | None = None,
    gate_scale: float | None = None,
    position_scale: float = 1.0,
    start: Tensor | None = None,
    skip: bool = True,
    approximate: bool = False,
    backend: str = "auto",
) -> Tensor:
    """CoPE (arXiv 2405.18719, Eqs. 3 to 9), as its Listing 1.

        g_ij = σ(gate_scale · q_i·k_j)
        p_ij = min(Σ_{k=j}^{i} g_ik, P)
        z_i[p] = q_i·e[p] at whole p, linearly interpolated between ⌊p⌋ and ⌈p⌉
        s_ij = scale · q_i·k_j + position_scale · z_i[p_ij]

    The interpolation weighs e[⌈p⌉] with p − ⌊p⌋, as the listing does; Eqs. 5 and 8 print the two
    weights the wrong way round. At whole p the slope in p is 0, as in the listing.

    The publications scale in three ways, all of them here:

        Listing 1 (default)          scale=None, position_scale=1
        Eqs. 3 and 9, as printed     scale=1
        the released code's default  position_scale=1/√D

    Args:
        query, key, value, scale, start, backend: as in `softmax_attention`.
        table: e, (P + 1, D) shared by the heads or (H, P + 1, D).
        gate_keys: (B, G, T, D), keys that only the gates use: a projection of their own
            (sep-keys) or the values (val-gates). `key` if None.
        position_query: (B, H, S, D), queries that meet the tables, and `gate_keys` where they
            are given; `query` if None. Beside a rotary encoding these are the unrotated ones:
            a rotated query would make all of that depend on the token's absolute index.
        relative_table: (R + 1, D) or (H, R + 1, D): adds q_i·r[min(i − j, R)], position encoding
            by token distance beside the contextual one ("CoPE + Relative", Table 5). Gates do
            not see it. It uses `position_query` too, and is not scaled.
        gate_scale: of the gates' logits; `scale` if None.
        position_scale: of z.
        skip: whether a fused backend may leave out the gates of keys past P counts, which no
            longer matter. The result differs by rounding at most.
        approximate: whether the triton backend may round gates to multiples of 2⁻¹⁰, and make them
            with the GPU's own tanh, which is right to 2⁻¹¹. Others do not. Of 256 tokens with a
            table of 65 rows of N(0, 0.1²), rounding alone made relative errors of 2e-3 in the
            output and 5e-2 in the gradients of query and key, most of them at the kinks of the
            table (5e-7 and 1e-6 without it, in fp32; measured in Triton's interpreter).

    Returns:
        (B, H, S, V) in the dtype of `value`. Counts are summed in at least fp32.

    Raises:
        UsageError: a shape, dtype or device does not fit, or the named backend refuses.
    """
    check_attention(query, key, value, start, scale=scale, gate_scale=gate_scale)
    check_number("position_scale", position_scale)
    table = parameter("table", table, query)
    check_table("table", table, query)
    check_gate_keys(gate_keys, query, key)
    if position_query is not None:
        check_floating(query=query, position_query=position_query)
        check_shape("position_query", position_query, tuple(query.shape), axes="that of query")
    if relative_table is not None:
        relative_table = parameter("relative_table", relative_table, query)
        check_table("relative_table", relative_table, query)
    return dispatch.run(
        "cope",
        backend,
        query=query,
        key=key,
        value=value,
        table=table,
        gate_keys=gate_keys,
        position_query=position_query,
        relative_table=relative_table,
        scale=scale,
        gate_scale=gate_scale,
        position_scale=position_scale,
        start=start,
        skip=skip,
        approximate=approximate,
    )


def cope_bias_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    table: Tensor,
    bias: Tensor,
    *,
    gate_keys: Tensor | None = None,
    scale: float | None = None,
    gate_scale: float | None = None,
    position_scale: float = 1.0,
    start: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """CoPE beside an additive bias, as ALiBi's, T5's, Kerple's or FIRE's.

        s_ij = scale · q_i·k_j + position_scale · z_i[p_ij] + b_ij

    z, p and the gates are those of `cope_attention`: gates do not see the bias, as they do not see
    its `relative_table`.

    Args:
        query, key, value, table, gate_keys, scale, gate_scale, position_scale, start, backend: as
            in `cope_attention`.
        bias: b, by distance or dense, as in `bias_attention`. −inf hides a pair from the softmax,
            and not from the count.

    Returns:
        (B, H, S, V) in the dtype of `value`.

    Raises:
        UsageError: a shape, dtype or device does not fit, or the named backend refuses.
    """
    check_attention(query, key, value, start, scale=scale, gate_scale=gate_scale)
    check_number("position_scale", position_scale)
    table = parameter("table", table, query)
    check_table("table", table, query)
    bias = check_bias(bias, query, key)
    check_gate_keys(gate_keys, query, key)
    return dispatch.run(
        "cope_bias",
        backend,
        query=query,
        key=key,
        value=value,
        table=table,
        bias=bias,
        gate_keys=gate_keys,
        scale=scale,
        gate_scale=gate_scale,
        position_scale=position_scale,
        start=start,
    )


def cope_alibi_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    slopes: Tensor,
    *,
    gate_keys: Tensor | None = None,
    scale: float | None = None,
    gate_scale: float | None = None,
    start: Tensor | None = None,
    approximate: bool = False,
    backend: str = "auto",
) -> Tensor:
    """CoPE with a slope in place of a table (arXiv 2405.18719, Eq. 10).

        s_ij = scale · q_i·k_j + m_h · p_ij,    p_ij = Σ_{k=j}^{i} σ(gate_scale · q_i·k_k)

    Args:
        query, key, value, gate_keys, scale, gate_scale, start, approximate, backend: as in
            `cope_attention`.
        slopes: m, (H,). Positions grow towards the past, so a negative slope favours the recent.

    Returns:
        (B, H, S, V) in the dtype of `value`.

    Raises:
        UsageError: a shape, dtype or device does not fit, or the named backend refuses.
    """
    check_attention(query, key, value, start, scale=scale, gate_scale=gate_scale)
    slopes = parameter("slopes", slopes, query)
    check_shape("slopes", slopes, (query.shape[1],), axes="(heads,)")
    check_gate_keys(gate_keys, query, key)
    return dispatch.run(
        "cope_alibi",
        backend,
        query=query,
        key=key,
        value=value,
        slopes=slopes,
        gate_keys=gate_keys,
        scale=scale,
        gate_scale=gate_scale,
        start=start,
        approximate=approximate,
    )


def cope_mlp_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weight_in: Tensor,
    bias_in: Tensor,
    weight_out: Tensor,
    *,
    gate_keys: Tensor | None = None,
    scale: float | None = None,
    gate_scale: float | None = None,
    max_position: float | None = None,
    start: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """CoPE whose position vectors come from a small network (arXiv 2405.18719, Appendix C).

        e(p) = Σ_n relu(weight_in[n] · p + bias_in[n]) · weight_out[n]
        s_ij = scale · q_i·k_j + q_i·e(p_ij)

    Args:
        query, key, value, gate_keys, scale, gate_scale, start, backend: as in `cope_attention`.
        weight_in, bias_in: (N,) for N hidden units.
        weight_out: (N, D).
        max_position: the largest position that the network is shown; None for no limit.

    Returns:
        (B, H, S, V) in the dtype of `value`.

    Raises:
        UsageError: a shape, dtype or device does not fit, or the named backend refuses.
    """
    check_attention(
        query, key, value, start, scale=scale, gate_scale=gate_scale, max_position=max_position
    )
    weight_in = parameter("weight_in", weight_in, query)
    bias_in = parameter("bias_in", bias_in, query)
    weight_out = parameter("weight_out", weight_out, query)
    if weight_in.ndim != 1 or weight_in.shape != bias_in.shape:
        raise UsageError(
            f"weight_in and bias_in must both have shape (hidden,), "
            f"got {shape(weight_in)} and {shape(bias_in)}"
        )
    check_shape(
        "weight_out", weight_out, (weight_in.shape[0], query.shape[3]), axes="(hidden, head_dim)"
    )
    check_gate_keys(gate_keys, query, key)
    return dispatch.run(
        "cope_mlp",
        backend,
        query=query,
        key=key,
        value=value,
        weight_in=weight_in,
        bias_in=bias_in,
        weight_out=weight_out,
        gate_keys=gate_keys,
        scale=scale,
        gate_scale=gate_scale,
        max_position=max_position,
        start=start,
    )
