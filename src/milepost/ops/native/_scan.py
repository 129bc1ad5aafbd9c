"""The compiled scan as `torch.library` ops: `milepost::scan` and its backward.

One pair of ops serves every attention op; `kind` says which. They take fp32 or bf16 queries, keys
and values, compute in fp32, and return fp32: the functions of the op's own files cast.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from milepost.ops import native

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
# The tensors that an op takes, after `kind` and before its numbers. All but `start` have gradients.
OPERANDS = (
    "query",
    "key",
    "value",
    "start",
    "gate_keys",
    "position_query",
    "table",
    "relative_table",
    "bias",
    "slopes",
    "decay",
)
NUMBERS = ("scale", "gate_scale", "position_scale", "attend_current", "skip")
DIFFERENTIABLE = tuple(name for name in OPERANDS if name != "start")
POISON = False  # tests: scratch memory starts as NaN


def refusal(query: Tensor, key: Tensor, value: Tensor) -> str | None:
    """Why the compiled kernels cannot take these operands; None if they can."""
    reason = native.missing()
    if reason is not None:
        return reason
    if query.dtype == torch.float64:
        return "computes in float32, got float64 tensors"
    if 0 in (*query.shape[:3], value.shape[3]):
        shapes = f"queries {tuple(query.shape)} and values {tuple(value.shape)}"
        return f"needs at least one head, query and value, got {shapes}"
    return _transform_that_it_lacks()


def _transform_that_it_lacks() -> str | None:
    if torch.compiler.is_compiling():
        if torch._C._are_functorch_transforms_active():
            return "cannot be compiled within a transform of torch.func"
        return None
    if torch.autograd.forward_ad._current_level >= 0:
        return "has no forward-mode derivatives"
    transforms = torch._C._functorch.get_interpreter_stack() or ()
    if sum(one.key() == torch._C._functorch.TransformType.Grad for one in transforms) > 1:
        return "has no second derivatives"
    return None


def attend(
    kind: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    start: Tensor | None,
    *,
    scale: float | None,
    gate_keys: Tensor | None = None,
    position_query: Tensor | None = None,
    table: Tensor | None = None,
    relative_table: Tensor | None = None,
    bias: Tensor | None = None,
    slopes: Tensor | None = None,
    decay: Tensor | None = None,
    gate_scale: float | None = None,
    position_scale: float = 1.0,
    attend_current: bool = False,
    skip: bool = True,
) -> tuple[Tensor, Tensor]:
    """Run the scan; the output in the dtype of `value`, and the remainder where there is one."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale

    def readable(tensor: Tensor | None) -> Tensor | None:
        return tensor.float() if tensor is not None and tensor.dtype == torch.float16 else tensor

    out, residual = _run(
        kind,
        readable(query),
        readable(key),
        readable(value),
        start,
        readable(gate_keys),
        readable(position_query),
        table,
        relative_table,
        bias,
        slopes,
        decay,
        scale,
        scale if gate_scale is None else gate_scale,
        position_scale,
        attend_current,
        skip,
    )
    return out.to(value.dtype), residual


def _run(*inputs: Any) -> tuple[Tensor, Tensor]:
    tensors = [given for given in inputs if isinstance(given, Tensor)]
    run: Any = _forward
    if torch._C._are_functorch_transforms_active():
        run = _Scan.apply  # torch.func.grad and its like want a Function of the newer kind
    elif _watched(tensors):
        run = scan
    elif torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        run = _Scan.apply
    out, residual = run(*inputs)
    return out, residual


def _watched(tensors: list[Tensor]) -> bool:
    """Whether somebody wants to see an op: a compiler, a tracer, a mode, a subclass of Tensor.

    An op takes some 100 µs on its way through PyTorch, and as many on its way back: more than the
    kernel needs for a short sequence. Where nobody looks, the kernel is called as it is.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.PreDispatch)
        or torch._C._len_torch_function_stack() > 0
        or torch._C._get_tracing_state() is not None
        or torch._C._autograd._profiler_enabled()
        or any(type(x) not in (Tensor, torch.nn.Parameter) or x.is_neg() for x in tensors)
    )


def _forward(
    kind: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    start: Tensor | None,
    gate_keys: Tensor | None,
    position_query: Tensor | None,
    table: Tensor | None,
    relative_table: Tensor | None,
    bias: Tensor | None,
    slopes: Tensor | None,
    decay: Tensor | None,
    scale: float,
    gate_scale: float,
    position_scale: float,
    attend_current: bool,
    skip: bool,
) -> tuple[Tensor, Tensor]:
    """The output (B, H, S, V), and what `_residual` makes room for."""
    B, H, S, _ = query.shape
    out = query.new_empty(B, H, S, value.shape[3], dtype=torch.float32)
    residual = _residual(kind, query)
    operands = Operands()
    operands.over_time(
        query=query, key=key, value=value, gate_keys=gate_keys, position_query=position_query
    )
    operands.over_time(bias=bias if kind == "bias_dense" else None)
    operands.tables(
        query,
        table=table,
        relative_table=relative_table,
        bias_table=bias if kind == "bias_table" else None,
    )
    operands.plain(start=start, slopes=slopes, decay=decay, out=out, residual=residual)
    numbers = (scale, gate_scale, position_scale, attend_current, skip)
    operands.run(kind, False, query, key, value, numbers)
    return out, residual


scan = torch.library.custom_op("milepost::scan", _forward, mutates_args=(), device_types="cpu")


def _residual(kind: str, query: Tensor) -> Tensor:
    """The remainder (B, H, S); else, for the backward, a logit of each row and 1 / its sum."""
    shape = query.shape[:3] if kind == "stick_breaking" else (2, *query.shape[:3])
    return query.new_empty(shape, dtype=torch.float32)


@scan.register_fake
def _(kind: str, query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    B, H, S, _ = query.shape
    out = query.new_empty(B, H, S, value.shape[3], dtype=torch.float32)
    return out, _residual(kind, query)


def _gradients(
    kind: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    start: Tensor | None,
    gate_keys: Tensor | None,
    position_query: Tensor | None,
    table: Tensor | None,
    relative_table: Tensor | None,
    bias: Tensor | None,
    slopes: Tensor | None,
    decay: Tensor | None,
    scale: float,
    gate_scale: float,
    position_scale: float,
    attend_current: bool,
    skip: bool,
    bias_grad: bool,
    out: Tensor,
    residual: Tensor,
    grad_out: Tensor,
    grad_residual: Tensor | None,
) -> list[Tensor]:
    """The fp32 gradients of query, key, value, and of each of the others that is there.

    That of a bias only with `bias_grad`: of a dense one it is as large as all pairs.
    """
    grad = _empty_grads(locals())
    operands = Operands()
    operands.over_time(
        query=query,
        key=key,
        value=value,
        gate_keys=gate_keys,
        position_query=position_query,
        grad_out=grad_out,
    )
    if kind == "bias_dense":
        operands.over_time(bias=bias)
        operands.plain(grad_bias=grad["bias"].zero_() if bias_grad else None)
    operands.tables(
        query,
        grad,
        table=table,
        relative_table=relative_table,
        bias_table=bias if kind == "bias_table" else None,
    )
    operands.plain(
        start=start,
        slopes=slopes,
        decay=decay,
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
    numbers = (scale, gate_scale, position_scale, attend_current, skip)
    operands.run(kind, True, query, key, value, numbers)
    return list(grad.values())


scan_backward = torch.library.custom_op(
    "milepost::scan_backward", _gradients, mutates_args=(), device_types="cpu"
)


def _empty_grads(given: dict[str, Any]) -> dict[str, Tensor]:
    """Room for a gradient of each operand; a dense bias that heads share has one for each."""
    B, H, S, _ = given["query"].shape
    grads = {}
    for name in DIFFERENTIABLE:
        operand = given[name]
        if operand is None or (name == "bias" and not given["bias_grad"]):
            continue
        dense = name == "bias" and operand.ndim == 4
        shape = (B, H, S, operand.shape[3]) if dense else operand.shape
        grads[name] = given["query"].new_empty(shape, dtype=torch.float32)
    return grads


@scan_backward.register_fake
def _(kind: str, *rest: Any) -> list[Tensor]:
    given = dict(zip((*OPERANDS, *NUMBERS, "bias_grad"), rest, strict=False))
    return list(_empty_grads(given).values())


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    kind, *rest = inputs
    tensors, numbers = rest[: len(OPERANDS)], rest[len(OPERANDS) :]
    ctx.save_for_backward(*tensors, *output)
    ctx.kind, ctx.numbers = kind, numbers
    if kind != "stick_breaking":
        ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_out: Tensor | None, grad_residual: Tensor | None) -> tuple[Any, ...]:
    *tensors, out, residual = ctx.saved_tensors
    if ctx.kind == "stick_breaking":
        grad_residual = torch.zeros_like(residual) if grad_residual is None else grad_residual
    else:
        grad_residual = None
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    needed = dict(zip(OPERANDS, ctx.needs_input_grad[1:], strict=False))
    given = (ctx.kind, *tensors, *ctx.numbers, needed["bias"])
    given = (*given, out, residual, grad_out, grad_residual)
    if torch._C._functorch.is_legacy_batchedtensor(grad_out):
        raise RuntimeError(
            "the native kernels do not take a batch of gradients (is_grads_batched, "
            "vectorize=True): torch.func.jacrev does, and backend='reference'"
        )
    run: Any = _gradients
    if torch._C._are_functorch_transforms_active() or torch.is_grad_enabled():
        run = _ScanBackward.apply  # refuses a second derivative
    elif _watched([given for given in given if isinstance(given, Tensor)]):
        run = scan_backward
    grads = iter(run(*given))

    def like(name: str, tensor: Tensor | None) -> Tensor | None:
        if tensor is None or name == "start" or (name == "bias" and not needed["bias"]):
            return None
        return next(grads).sum_to_size(tensor.shape).to(tensor.dtype)

    grad = [like(name, tensor) for name, tensor in zip(OPERANDS, tensors, strict=True)]
    return (None, *grad, *(None for _ in NUMBERS))


scan.register_autograd(_backward, setup_context=_setup)


class _Scan(torch.autograd.Function):
    """`scan` where nobody sees an op; and under functorch, which refuses `register_autograd`'s."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        tensors = [given for given in inputs if isinstance(given, Tensor)]
        return scan(*inputs) if _watched(tensors) else _forward(*inputs)

    setup_context = staticmethod(_setup)
    backward = staticmethod(_backward)

    @staticmethod
    def vmap(info: Any, dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        return _one_by_one(_run, info.batch_size, dims, inputs)


class _ScanBackward(torch.autograd.Function):
    """`scan_backward` likewise. It has no gradient of its own."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        return tuple(scan_backward(*inputs))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def vmap(info: Any, dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        return _one_by_one(_ScanBackward.apply, info.batch_size, dims, inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise RuntimeError(
            "the native kernels have no second derivatives: backend='reference' has them"
        )


def _one_by_one(
    run: Callable[..., tuple[Tensor, ...]],
    count: int,
    dims: tuple[Any, ...],
    inputs: tuple[Any, ...],
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """torch.func.vmap: a call for each, and their results along a new first axis."""
    given = list(zip(inputs, dims, strict=True))
    results = [
        run(*(x if dim is None else x.select(dim, i) for x, dim in given)) for i in range(count)
    ]
    together = tuple(torch.stack(parts) for parts in zip(*results, strict=True))
    return together, (0,) * len(together)


class Operands:
    """What the extension takes: addresses and strides, and the tensors behind them kept alive."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.kept: list[Tensor] = []

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
            # A shared dense bias has one batch or one head: a stride of 0 repeats it
            strides = (
                stride if size > 1 else 0
                for size, stride in zip(tensor.shape[:2], tensor.stride()[:2], strict=True)
            )
            bfloat16 = tensor.dtype == torch.bfloat16
            self.given[name] = (tensor.data_ptr(), *strides, tensor.stride(2), bfloat16)

    def tables(
        self, query: Tensor, grads: dict[str, Tensor] | None = None, **tables: Tensor | None
    ) -> None:
        """(rows, width) or (heads, rows, width); a bias table is (heads, rows)."""
        for name, table in tables.items():
            if table is None:
                continue
            table = self.keep(table.float().contiguous())
            rows = table.shape[1] if name == "bias_table" else table.shape[-2]
            head = table.stride(0) if table.ndim == 3 else 0
            grad = (grads or {}).get("bias" if name == "bias_table" else name)
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

    def run(
        self,
        kind: str,
        backward: bool,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        numbers: tuple[float, float, float, bool, bool],
    ) -> None:
        B, H, S, D = query.shape
        self.given.update(zip(NUMBERS, numbers, strict=True), poison=POISON)
        native.run(
            KINDS.index(kind),
            backward,
            (B, H, key.shape[1], S, key.shape[2], D, value.shape[3]),
            torch.get_num_threads(),
            self.given,
        )
