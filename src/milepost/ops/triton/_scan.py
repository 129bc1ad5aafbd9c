"""The scan on GPUs: what it takes, how its operands are prepared, and its launches."""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from milepost.ops import triton
from milepost.ops.inputs import Inputs
from milepost.ops.scan import Scan, empty_grads, transform_without_derivatives
from milepost.ops.triton._blocks import Blocks, Sizes, blocks, target

LOG2_E = math.log2(math.e)
QUANTA = 1 << 22  # of a whole count: arithmetic.py
NEVER = 1 << 60  # quanta that no row counts
STICK_IS_SPENT = 24.0  # 2⁻²⁴ of it is left
OLDEST_GPU = (8, 0)
MOST_HEAD_DIM = 256
MOST_FP32_HEAD_DIM_WITH_BOTH = 128  # gate keys and a relative table
MOST_VALUE_DIM = {2: 256, 4: 128}  # by the bytes of a number; wider ones are cut
# Tables that are longer than sequences are made and used in stretches of queries, that take
# together no more than so many bytes
SCRATCH = 1 << 29


def refusal(query: Tensor, key: Tensor, value: Tensor, **rest: Any) -> str | None:
    """Why the kernels cannot take these operands; None if they can."""
    reason = triton.missing()
    if reason is not None:
        return reason
    if query.dtype == torch.float64:
        return "computes in float32, got float64 tensors"
    if query.is_cuda and torch.version.hip is None and not torch.compiler.is_compiling():
        capability = torch.cuda.get_device_capability(query.device)
        if capability < OLDEST_GPU:
            return f"needs a GPU of compute capability 8.0 (Ampere) or later, got {capability}"
    if query.shape[3] > MOST_HEAD_DIM:
        return f"takes head_dim up to {MOST_HEAD_DIM}, got {query.shape[3]}"
    # Two lots of keys and two tables: registers would spill, of which the interpreter has none
    both = rest.get("gate_keys") is not None and rest.get("relative_table") is not None
    most = MOST_FP32_HEAD_DIM_WITH_BOTH
    single = query.dtype == torch.float32 and not triton.interpreted()
    if both and single and query.shape[3] > most:
        return (
            f"takes relative_table beside gate_keys up to head_dim {most} in float32, "
            f"got {query.shape[3]}"
        )
    if 0 in (*query.shape[:3], value.shape[3]):
        shapes = f"queries {tuple(query.shape)} and values {tuple(value.shape)}"
        return f"needs at least one head, query and value, got {shapes}"
    return transform_without_derivatives()


def attend(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Run the scan; the output, and the remainder where there is one."""
    width = MOST_VALUE_DIM[inputs.value.element_size()]
    if inputs.value.shape[3] <= width:
        return SCAN(inputs)
    # Outputs are linear in values: wide ones are several narrow ones
    parts = [SCAN(inputs._replace(value=value)) for value in inputs.value.split(width, dim=3)]
    return torch.cat([out for out, _ in parts], dim=3), parts[0][1]


def _results(given: Inputs) -> tuple[Tensor, Tensor]:
    """The output, and the remainder (B, H, S); else of each row a logit, and 1 / its sum."""
    B, H, S, _ = given.query.shape
    out = given.value.new_empty(B, H, S, given.value.shape[3])
    shape = (B, H, S) if given.kind == "stick_breaking" else (2, B, H, S)
    return out, given.query.new_empty(shape, dtype=torch.float32)


def _grads(given: Inputs, bias_grad: bool) -> dict[str, Tensor]:
    def empty(name: str, shape: tuple[int, ...]) -> Tensor:
        return given.query.new_empty(shape, dtype=_grad_dtype(name, given))

    return empty_grads(given, bias_grad, empty)


def _grad_dtype(name: str, given: Inputs) -> torch.dtype:
    """Those of queries, keys and values are rounded once, at their end; others are fp32."""
    rounded = ("query", "key", "value", "gate_keys", "position_query")
    return given.query.dtype if name in rounded else torch.float32


def stretches(given: Inputs, *, backward: bool) -> list[slice]:
    """Which queries are met together: all, unless what belongs to them would not fit SCRATCH."""
    B, H, S, _ = given.query.shape
    numbers = sum(
        factor * table.shape[-2]
        for table, factor in ((given.table, 2), (given.relative_table, 1))
        if table is not None
    )
    if backward:
        numbers *= 2
        if given.kind == "bias_table" and given.bias is not None:
            numbers += given.bias.shape[1]
        if given.kind in ("cope", "cope_alibi", "stick_breaking"):
            numbers += 3 * math.ceil(given.key.shape[2] / _blocks(given, "band_query").N)
    rows = max(SCRATCH // max(4 * B * H * numbers, 1) // 64, 1) * 64
    return [slice(begin, min(begin + rows, S)) for begin in range(0, S, rows)]


def of_stretch(given: Inputs, rows: slice) -> Inputs:
    """The operands of some queries, and the keys up to the last of them."""
    S, T = given.query.shape[2], given.key.shape[2]
    if (rows.start, rows.stop) == (0, S):
        return given
    end = T - S + rows.stop

    def cut(tensor: Any, axis: int, part: slice) -> Any:
        if tensor is None:
            return None
        return tensor.narrow(axis, part.start, part.stop - part.start)

    keys = slice(0, end)
    bias = given.bias
    if given.kind == "bias_dense":
        bias = cut(cut(bias, 2, rows), 3, keys)
    return given._replace(
        query=cut(given.query, 2, rows),
        key=cut(given.key, 2, keys),
        value=cut(given.value, 2, keys),
        start=cut(given.start, 1, rows),
        gate_keys=cut(given.gate_keys, 2, keys),
        position_query=cut(given.position_query, 2, rows),
        decay=cut(given.decay, 2, keys),
        bias=bias,
    )


def _forward(given: Inputs) -> tuple[Tensor, Tensor]:
    parts = stretches(given, backward=False)
    if len(parts) == 1:
        return _forward_of(given)
    results = [_forward_of(of_stretch(given, rows)) for rows in parts]
    return torch.cat([out for out, _ in results], 2), torch.cat([rest for _, rest in results], -1)


def _forward_of(given: Inputs) -> tuple[Tensor, Tensor]:
    from milepost.ops.triton import _launch

    out, residual = _results(given)
    with _on_its_device(given.query):
        _launch.forward(given, out, residual)
    return out, residual


def _on_its_device(query: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current GPU, wherever the tensors are."""
    return torch.cuda.device_of(query) if query.is_cuda else nullcontext()


def _gradients(
    given: Inputs,
    bias_grad: bool,
    out: Tensor,
    residual: Tensor,
    grad_out: Tensor,
    grad_residual: Tensor | None,
) -> list[Tensor]:
    from milepost.ops.triton import _launch

    parts = stretches(given, backward=True)
    if len(parts) == 1:
        grads = _grads(given, bias_grad)
        with _on_its_device(given.query):
            _launch.backward(given, grads, out, residual, grad_out, grad_residual)
        return list(grads.values())
    total = {
        name: torch.zeros_like(grad, dtype=torch.float32)
        for name, grad in _grads(given, bias_grad).items()
    }
    for rows in parts:
        short = of_stretch(given, rows)
        grads = _grads(short, bias_grad)
        of_rows = (x[..., rows] for x in (residual, grad_residual) if x is not None)
        some = [x.contiguous() for x in of_rows]
        with _on_its_device(given.query):
            _launch.backward(
                short,
                grads,
                out[:, :, rows].contiguous(),
                some[0],
                grad_out[:, :, rows],
                some[1] if len(some) > 1 else None,
            )
        for name, grad in grads.items():
            at = total[name]
            if name in ("query", "position_query") or (grad.ndim == 4 and name == "bias"):
                at = at[:, :, rows]
            elif name in ("key", "value", "gate_keys", "decay"):
                at = at[:, :, : grad.shape[2]]
            if grad.ndim == 4 and name == "bias":
                at = at[..., : grad.shape[3]]
            at += grad
    return [grad.to(_grad_dtype(name, given)) for name, grad in total.items()]


def _blocks(given: Inputs, kernel: str) -> Blocks:
    width = max(given.query.shape[3], given.value.shape[3], 16)
    sizes = Sizes(
        given.kind,
        1 << (width - 1).bit_length(),
        given.query.element_size(),
        more=given.gate_keys is not None or given.relative_table is not None,
        target=target(),
    )
    return blocks(kernel, sizes)


SCAN = Scan(
    "gpu_scan",
    "triton",
    forward=_forward,
    gradients=_gradients,
    results=_results,
    grads=_grads,
    device=None,
)
