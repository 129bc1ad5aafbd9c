"""The compiled scan: what it takes, and what it is given for each op.

It takes fp32 or bf16 queries, keys and values, computes in fp32, and returns fp32; fp16 is widened
before, and the output takes the dtype of the values again.
"""

from typing import Any

import torch
from torch import Tensor

from milepost.ops import native
from milepost.ops.inputs import Inputs
from milepost.ops.scan import Scan, empty_grads, transform_without_derivatives

# The order of `enum class Op` in kernels/interface.hpp
KINDS = (
    "softmax",
    "bias_table",
    "bias_dense",
    "relative",
    "cope",
    "cope_alibi",
    "forgetting",
    "stick_breaking",
)
# The operands that have one dtype, that of the output
OVER_TIME = ("query", "key", "value", "gate_keys", "position_query")
# What the extension reads beside the tensors
NUMBERS = ("scale", "gate_scale", "position_scale", "attend_current", "skip")
POISON = False  # tests: scratch memory starts as NaN


def refusal(query: Tensor, key: Tensor, value: Tensor, **rest: Any) -> str | None:
    """Why the compiled kernels cannot take these operands; None if they can."""
    reason = native.missing()
    if reason is not None:
        return reason
    if query.dtype == torch.float64:
        return "computes in float32, got float64 tensors"
    if 0 in (*query.shape[:3], value.shape[3]):
        shapes = f"queries {tuple(query.shape)} and values {tuple(value.shape)}"
        return f"needs at least one head, query and value, got {shapes}"
    return transform_without_derivatives()


def attend(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Run the scan; the output in the dtype of `value`, and the remainder where there is one."""
    dtype = inputs.value.dtype
    if dtype == torch.float16:
        widened: Any = {name: _widened(getattr(inputs, name)) for name in OVER_TIME}
        inputs = inputs._replace(**widened)
    out, residual = SCAN(inputs)
    return out.to(dtype), residual


def _widened(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.float()


def _results(given: Inputs) -> tuple[Tensor, Tensor]:
    """The output, and the remainder (B, H, S); else of each row a logit, and 1 / its sum."""
    B, H, S, _ = given.query.shape
    out = given.query.new_empty(B, H, S, given.value.shape[3], dtype=torch.float32)
    shape = (B, H, S) if given.kind == "stick_breaking" else (2, B, H, S)
    return out, given.query.new_empty(shape, dtype=torch.float32)


def _grads(given: Inputs, bias_grad: bool) -> dict[str, Tensor]:
    def empty(name: str, shape: tuple[int, ...]) -> Tensor:
        return given.query.new_empty(shape, dtype=torch.float32)

    return empty_grads(given, bias_grad, empty)


def _forward(given: Inputs) -> tuple[Tensor, Tensor]:
    out, residual = _results(given)
    operands = Operands(given)
    operands.plain(out=out, residual=residual)
    operands.run(backward=False)
    return out, residual


def _gradients(
    given: Inputs,
    bias_grad: bool,
    out: Tensor,
    residual: Tensor,
    grad_out: Tensor,
    grad_residual: Tensor | None,
) -> list[Tensor]:
    """The fp32 gradients of query, key, value, and of each of the others that is there."""
    grad = _grads(given, bias_grad)
    operands = Operands(given, grad)
    operands.over_time(grad_out=grad_out)
    if given.kind == "bias_dense":
        operands.plain(grad_bias=grad["bias"].zero_() if bias_grad else None)
    operands.plain(
        out=out,
        residual=residual,
        grad_residual=grad_residual,
        grad_query=grad["query"],
        grad_key=grad["key"],
        grad_value=grad["value"],
        grad_gate_keys=grad.get("gate_keys"),
        grad_position_query=grad.get("position_query"),
        grad_slopes=grad.get("slopes"),
        grad_decay=grad.get("decay"),
    )
    operands.run(backward=True)
    return list(grad.values())


SCAN = Scan(
    "scan",
    "native",
    forward=_forward,
    gradients=_gradients,
    results=_results,
    grads=_grads,
    device="cpu",
)


class Operands:
    """What the extension takes: addresses and strides, and the tensors behind them kept alive."""

    def __init__(self, inputs: Inputs, grads: dict[str, Tensor] | None = None) -> None:
        self.inputs = inputs
        self.grads = grads or {}
        self.given: dict[str, Any] = {}
        self.kept: list[Tensor] = []
        self.over_time(
            query=inputs.query,
            key=inputs.key,
            value=inputs.value,
            gate_keys=inputs.gate_keys,
            position_query=inputs.position_query,
        )
        dense = inputs.kind == "bias_dense"
        self.over_time(bias=inputs.bias if dense else None)
        self.tables(
            table=inputs.table,
            relative_table=inputs.relative_table,
            bias_table=None if dense else inputs.bias,
        )
        self.plain(start=inputs.start, slopes=inputs.slopes, decay=inputs.decay)

    def keep(self, tensor: Tensor) -> Tensor:
        self.kept.append(tensor)
        return tensor

    def over_time(self, **tensors: Tensor | None) -> None:
        """(batch, heads, time, width) in any layout with a contiguous last axis."""
        for name, tensor in tensors.items():
            if tensor is None:
                continue
            if tensor.stride(3) != 1 and tensor.shape[3] > 1:
                tensor = tensor.contiguous()
            self.keep(tensor)
            batches, heads, _, _ = tensor.shape
            batch, head, time, _ = tensor.stride()
            self.given[name] = (
                tensor.data_ptr(),
                # A shared dense bias has one batch or one head: a stride of 0 repeats it
                batch if batches > 1 else 0,
                head if heads > 1 else 0,
                time,
                tensor.dtype == torch.bfloat16,
            )

    def tables(self, **tables: Tensor | None) -> None:
        """(rows, width) or (heads, rows, width); a bias table is (heads, rows)."""
        for name, table in tables.items():
            if table is None:
                continue
            table = self.keep(table.float().contiguous())
            rows = table.shape[1] if name == "bias_table" else table.shape[-2]
            head = table.stride(0) if table.ndim == 3 else 0
            grad = self.grads.get("bias" if name == "bias_table" else name)
            self.given[name] = (
                table.data_ptr(),
                rows,
                head,
                0 if grad is None else grad.data_ptr(),
            )

    def plain(self, **tensors: Tensor | None) -> None:
        """Contiguous ones, as they are."""
        for name, tensor in tensors.items():
            if tensor is not None:
                if name == "start":
                    tensor = tensor.long()
                self.given[name] = self.keep(tensor.contiguous()).data_ptr()

    def run(self, *, backward: bool) -> None:
        """Call the extension."""
        inputs = self.inputs
        B, H, S, D = inputs.query.shape
        self.given.update({name: getattr(inputs, name) for name in NUMBERS}, poison=POISON)
        native.run(
            KINDS.index(inputs.kind),
            backward,
            (B, H, inputs.key.shape[1], S, inputs.key.shape[2], D, inputs.value.shape[3]),
            torch.get_num_threads(),
            self.given,
        )
