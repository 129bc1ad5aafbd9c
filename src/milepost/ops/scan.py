"""A fused backend's scan as a pair of `torch.library` ops, forward and backward.

One pair serves every attention op; `kind` says which. The ops are what compilers, tracers and
profilers see. Where nobody looks, the backend's functions are called without them.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from milepost.ops.inputs import NUMBERS, TENSORS, Inputs

Results = tuple[Tensor, Tensor]
MORE = len(Inputs._fields)  # where what the backward alone takes begins: `bias_grad`, …


def schema(*more: str) -> str:
    """The arguments of the ops, as `torch.library` wants them written."""
    numbers = {float: "float", bool: "bool"}
    needed = ("query", "key", "value")
    arguments = [
        "str kind",
        *(f"Tensor{'' if name in needed else '?'} {name}" for name in TENSORS),
        *(f"{numbers[Inputs.__annotations__[name]]} {name}" for name in NUMBERS),
        *more,
    ]
    return f"({', '.join(arguments)})"


def transform_without_derivatives() -> str | None:
    """What of torch.func or forward mode is active that the ops have no derivatives for."""
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


def watched(tensors: list[Tensor]) -> bool:
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


def present(tensors: Iterable[Tensor | None]) -> list[Tensor]:
    """Those that are there."""
    return [tensor for tensor in tensors if tensor is not None]


class Scan:
    """The ops `milepost::NAME` and `milepost::NAME_backward`.

    Args:
        name: of the ops; `backend` is the name that errors say.
        forward: the output, and what `results` says beside it: the remainder (B, H, S) of
            stick-breaking, else what the backward needs of each row.
        gradients: the gradients that `grads` makes room for, from the inputs, whether a bias wants
            one (a dense one has as many as all pairs), the forward's results, and their gradients.
        results, grads: room for these; shapes and dtypes alone matter.
        device: where the ops run; None for anywhere.
    """

    def __init__(
        self,
        name: str,
        backend: str,
        *,
        forward: Callable[[Inputs], Results],
        gradients: Callable[..., list[Tensor]],
        results: Callable[[Inputs], Results],
        grads: Callable[[Inputs, bool], dict[str, Tensor]],
        device: str | None,
    ) -> None:
        self.backend = backend

        def run_forward(*given: Any) -> Results:
            return forward(Inputs._make(given))

        def run_backward(*given: Any) -> list[Tensor]:
            return gradients(Inputs._make(given[:MORE]), *given[MORE:])

        def fake_backward(*given: Any) -> list[Tensor]:
            return list(grads(Inputs._make(given[:MORE]), given[MORE]).values())

        self.forward, self.gradients = run_forward, run_backward
        self.op = torch.library.custom_op(
            f"milepost::{name}",
            run_forward,
            mutates_args=(),
            device_types=device,
            schema=f"{schema()} -> (Tensor, Tensor)",
        )
        self.op.register_fake(lambda *given: results(Inputs._make(given)))
        self.op.register_autograd(self._backward, setup_context=_setup)
        cotangents = ("Tensor out", "Tensor residual", "Tensor grad_out", "Tensor? grad_residual")
        self.backward_op = torch.library.custom_op(
            f"milepost::{name}_backward",
            run_backward,
            mutates_args=(),
            device_types=device,
            schema=f"{schema('bool bias_grad', *cotangents)} -> Tensor[]",
        )
        self.backward_op.register_fake(fake_backward)
        self.function, self.backward_function = _functions(self)

    def __call__(self, inputs: Inputs) -> Results:
        """The op on these operands, by the shortest way that is open."""
        tensors = present(inputs.tensors())
        run: Any = self.forward
        if torch._C._are_functorch_transforms_active():
            run = self.function.apply  # torch.func.grad and its like want a newer Function
        elif watched(tensors):
            run = self.op
        elif torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            run = self.function.apply
        out, residual = run(*inputs)
        return out, residual

    def _backward(
        self, ctx: Any, grad_out: Tensor | None, grad_residual: Tensor | None
    ) -> tuple[Any, ...]:
        *tensors, out, residual = ctx.saved_tensors
        if ctx.kind == "stick_breaking":
            grad_residual = torch.zeros_like(residual) if grad_residual is None else grad_residual
        else:
            grad_residual = None
        if grad_out is None:
            grad_out = torch.zeros_like(out)
        needed = dict(zip(TENSORS, ctx.needs_input_grad[1:], strict=False))
        given = (ctx.kind, *tensors, *ctx.numbers, needed["bias"])
        given = (*given, out, residual, grad_out, grad_residual)
        if torch._C._functorch.is_legacy_batchedtensor(grad_out):
            raise RuntimeError(
                f"the {self.backend} kernels do not take a batch of gradients (is_grads_batched, "
                "vectorize=True): torch.func.jacrev does, and backend='reference'"
            )
        run: Any = self.gradients
        if torch._C._are_functorch_transforms_active() or torch.is_grad_enabled():
            run = self.backward_function.apply  # refuses a second derivative
        elif watched(present((*tensors, out, residual, grad_out, grad_residual))):
            run = self.backward_op
        grads = iter(run(*given))

        def like(name: str, tensor: Tensor | None) -> Tensor | None:
            if tensor is None or name == "start" or (name == "bias" and not needed["bias"]):
                return None
            gradient = next(grads)
            if name == "bias":  # heads or batches may share it
                gradient = gradient.sum_to_size(tensor.shape)
            return gradient.to(tensor.dtype)

        grad = [like(name, tensor) for name, tensor in zip(TENSORS, tensors, strict=True)]
        return (None, *grad, *(None for _ in NUMBERS))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Results) -> None:
    given = Inputs._make(inputs)
    ctx.save_for_backward(*given.tensors(), *output)
    ctx.kind, ctx.numbers = given.kind, given.numbers()
    if given.kind != "stick_breaking":
        ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _functions(scan: Scan) -> tuple[Any, Any]:
    """The ops as autograd Functions.

    They run where nobody sees an op, and under functorch, which refuses `register_autograd`'s.
    """

    class Forward(torch.autograd.Function):
        @staticmethod
        def forward(*inputs: Any) -> Results:
            tensors = present(Inputs._make(inputs).tensors())
            return scan.op(*inputs) if watched(tensors) else scan.forward(*inputs)

        setup_context = staticmethod(_setup)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return scan._backward(ctx, *grads)

        @staticmethod
        def vmap(info: Any, dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
            return _one_by_one(lambda *one: scan(Inputs._make(one)), info.batch_size, dims, inputs)

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(*inputs: Any) -> tuple[Tensor, ...]:
            return tuple(scan.backward_op(*inputs))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
            pass

        @staticmethod
        def vmap(info: Any, dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
            return _one_by_one(Backward.apply, info.batch_size, dims, inputs)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> None:
            raise RuntimeError(
                f"the {scan.backend} kernels have no second derivatives: "
                "backend='reference' has them"
            )

    return Forward, Backward


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


def empty_grads(
    given: Inputs, bias_grad: bool, empty: Callable[[str, tuple[int, ...]], Tensor]
) -> dict[str, Tensor]:
    """Room for a gradient of each operand; a dense bias that heads share has one for each."""
    B, H, S, _ = given.query.shape
    grads = {}
    for name, operand in zip(TENSORS, given.tensors(), strict=True):
        if operand is None or name == "start" or (name == "bias" and not bias_grad):
            continue
        dense = name == "bias" and operand.ndim == 4
        shape = (B, H, S, operand.shape[3]) if dense else operand.shape
        grads[name] = empty(name, shape)
    return grads
