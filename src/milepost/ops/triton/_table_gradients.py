"""Gradients as the kernels write them, and from those of rows the gradients of tables."""

import torch
from torch import Tensor

from milepost.ops.inputs import Inputs
from milepost.ops.triton._kernels.operands import Gradients
from milepost.ops.triton._operands import furthest, met_by_tables, with_steps


def room(given: Inputs, grads: dict[str, Tensor]) -> Gradients:
    """Where the kernels write; what belongs to tables is summed over rows afterwards."""
    B, H, S, _ = given.query.shape
    T = given.key.shape[2]

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, device=given.query.device)

    by_row = given.relative_table is not None or (given.kind == "bias_table" and "bias" in grads)
    separate = given.gate_keys is not None and given.position_query is not None
    bias = None
    if given.kind == "bias_dense" and "bias" in grads:
        bias = grads["bias"].zero_()
    return Gradients(
        query=grads["query"],
        key=grads["key"],
        value=grads["value"],
        gate_query=torch.empty_like(grads["position_query"]) if separate else None,
        gate_key=grads.get("gate_keys"),
        lookup=None if given.table is None else zeros(B, H, S, given.table.shape[-2], 2),
        distance=zeros(B, H, S, furthest(given) + 1) if by_row else None,
        bias=bias,
        row=zeros(B, H, S) if given.decay is not None or given.slopes is not None else None,
        column=zeros(B, H, T) if given.decay is not None else None,
    )


def finish(given: Inputs, grads: dict[str, Tensor], written: Gradients) -> None:
    """From what the kernels wrote for each row, the gradients of tables, biases and decays."""
    from_tables = torch.zeros_like(given.query, dtype=torch.float32)
    if given.table is not None:
        # sums past each count, so that the differences are those at each count
        at_count = written.lookup.clone()
        at_count[..., :-1, :] -= written.lookup[..., 1:, :]
        d_pairs = given.position_scale * at_count.flatten(-2)
        query, table = met_by_tables(given), with_steps(given.table)
        from_tables += d_pairs @ table
        d_table = _sum_to(d_pairs.mT @ query, table).unflatten(-2, (-1, 2))
        here, step = d_table.unbind(-2)
        step = step[..., :-1, :]
        grads["table"].copy_(here)
        grads["table"][..., 1:, :] += step
        grads["table"][..., :-1, :] -= step
    if given.relative_table is not None:
        query, table = met_by_tables(given), given.relative_table.float()
        from_tables += written.distance @ table
        grads["relative_table"].copy_(_sum_to(written.distance.mT @ query, table))
    if given.table is not None or given.relative_table is not None:
        name = "query" if given.position_query is None else "position_query"
        if written.gate_query is not None:
            from_tables += written.gate_query
        elif given.position_query is None:
            from_tables += grads["query"]
        grads[name].copy_(from_tables)
    if given.kind == "bias_table" and written.distance is not None:
        grads["bias"].copy_(written.distance.sum((0, 2)))
    if given.slopes is not None:
        grads["slopes"].copy_(written.row.sum((0, 2)))
    if given.decay is not None:
        grads["decay"].copy_(-written.column)
        grads["decay"][..., given.key.shape[2] - given.query.shape[2] :] += written.row


def _sum_to(d_table: Tensor, table: Tensor) -> Tensor:
    """Over batches, and over heads that share the table."""
    return d_table.sum(0) if table.ndim == 3 else d_table.sum((0, 1))
