"""What a fused backend's scan is given, the same for every op: what each op passes, and the rest.

`kind` says which op it is; what an op does not have is None, or the number that changes nothing.
"""

import math
from typing import Any, NamedTuple

from torch import Tensor


class Inputs(NamedTuple):
    """The tensors are those of the ops' own functions; all but `start` have gradients."""

    kind: str
    query: Tensor
    key: Tensor
    value: Tensor
    start: Tensor | None = None
    gate_keys: Tensor | None = None
    position_query: Tensor | None = None
    table: Tensor | None = None
    relative_table: Tensor | None = None
    bias: Tensor | None = None
    slopes: Tensor | None = None
    decay: Tensor | None = None
    """Λ, the running sum of log f, in fp64."""
    scale: float = 1.0
    gate_scale: float = 1.0
    position_scale: float = 1.0
    attend_current: bool = False
    skip: bool = True
    approximate: bool = False

    def tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors, in the order of `TENSORS`."""
        tensors: Any = self[1 : 1 + len(TENSORS)]
        return tensors

    def numbers(self) -> tuple[float | bool, ...]:
        """The numbers, in the order of `NUMBERS`."""
        numbers: Any = self[1 + len(TENSORS) :]
        return numbers


_first_number = Inputs._fields.index("scale")
TENSORS = Inputs._fields[1:_first_number]
NUMBERS = Inputs._fields[_first_number:]


def _scale(scale: float | None, query: Tensor) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def softmax(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None, start: Tensor | None
) -> Inputs:
    """Of `milepost.ops.softmax_attention`."""
    return Inputs("softmax", query, key, value, start, scale=_scale(scale, query))


def bias(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    scale: float | None,
    start: Tensor | None,
) -> Inputs:
    """Of `milepost.ops.bias_attention`."""
    kind = "bias_table" if bias.ndim == 2 else "bias_dense"
    return Inputs(kind, query, key, value, start, bias=bias, scale=_scale(scale, query))


def relative(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    table: Tensor,
    scale: float | None,
    start: Tensor | None,
) -> Inputs:
    """Of `milepost.ops.relative_attention`."""
    scale = _scale(scale, query)
    return Inputs("relative", query, key, value, start, relative_table=table, scale=scale)


def cope(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    table: Tensor,
    gate_keys: Tensor | None,
    position_query: Tensor | None,
    relative_table: Tensor | None,
    scale: float | None,
    gate_scale: float | None,
    position_scale: float,
    start: Tensor | None,
    skip: bool,
    approximate: bool,
) -> Inputs:
    """Of `milepost.ops.cope_attention`."""
    scale = _scale(scale, query)
    return Inputs(
        "cope",
        query,
        key,
        value,
        start,
        gate_keys,
        position_query,
        table,
        relative_table,
        scale=scale,
        gate_scale=scale if gate_scale is None else gate_scale,
        position_scale=position_scale,
        skip=skip,
        approximate=approximate,
    )


def cope_alibi(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    slopes: Tensor,
    gate_keys: Tensor | None,
    scale: float | None,
    gate_scale: float | None,
    start: Tensor | None,
    approximate: bool,
) -> Inputs:
    """Of `milepost.ops.cope_alibi_attention`."""
    scale = _scale(scale, query)
    return Inputs(
        "cope_alibi",
        query,
        key,
        value,
        start,
        gate_keys,
        slopes=slopes,
        scale=scale,
        gate_scale=scale if gate_scale is None else gate_scale,
        approximate=approximate,
    )


def forgetting(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    decay: Tensor,
    scale: float | None,
    start: Tensor | None,
    skip: bool,
) -> Inputs:
    """Of `milepost.ops.forgetting_attention`."""
    scale = _scale(scale, query)
    return Inputs("forgetting", query, key, value, start, decay=decay, scale=scale, skip=skip)


def stick_breaking(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attend_current: bool,
    scale: float | None,
    start: Tensor | None,
    skip: bool,
) -> Inputs:
    """Of `milepost.ops.stick_breaking_attention`."""
    return Inputs(
        "stick_breaking",
        query,
        key,
        value,
        start,
        scale=_scale(scale, query),
        attend_current=attend_current,
        skip=skip,
    )
