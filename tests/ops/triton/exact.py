"""How near the kernels must come to the reference in fp64, on the very numbers they were given.

On fp32, as near as the kernels for CPUs: `differences` of `tests/ops/exact.py`. On halves they also
round to the operands' dtype, where every kernel of this kind does, and nowhere else:

    the weights, before they meet values in the forward, and ∂loss/∂out in the backward;
    ∂loss/∂logit and ∂loss/∂gate, where they meet keys or queries; and where ∂loss/∂logit is summed
    for each whole count, it and its product with the part of the count above the whole;
    ∂loss/∂count, before it is summed into the gates';
    the results, of which the backward reads the output again.

`margins` is twice how far results are from exact if each of these roundings is as wrong as it can
be, one unit roundoff, up or down as a coin falls: the reference in fp64 with these errors in it, in
root mean square over a few throws. Independent errors add up as squares do, so that twice is the
worst of four that all pull one way, and out of reach for many: a rounding's own mean is less than a
half of its worst, and the kernels are to be found at about a fifth of the margin.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.ops import dispatch, triton
from milepost.ops.reference import pairs

from ..cases import Op, floating, gradients, parts
from ..exact import differences, exactly, small_beside_their_terms

DEVICE = "cpu" if triton.interpreted() else "cuda"
THROWS = 4

Results = tuple[tuple[Tensor, ...], dict[str, Tensor]]


def kernels(call: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """An op's function by these kernels, where they run; its results come back."""

    def there(**given: Any) -> Any:
        moved = {name: x.to(DEVICE) if isinstance(x, Tensor) else x for name, x in given.items()}
        results = call(**moved | options, backend="triton")
        if isinstance(results, tuple):
            return tuple(result.cpu() for result in results)
        return results.cpu()

    return there


def found(op: Op, given: dict[str, Any], **options: Any) -> Results:
    """Results and gradients of the kernels, from one forward."""
    results: list[tuple[Tensor, ...]] = []
    call = kernels(op.call, **options)

    def kept(**given: Any) -> Any:
        results.append(parts(call(**given)))
        return results[-1]

    slopes = gradients(kept, given)
    return tuple(result.detach() for result in results[0]), slopes


class Rounding:
    """Of numbers to `dtype`, each as wrong as it can be, up or down."""

    def __init__(self, dtype: torch.dtype) -> None:
        limits = torch.finfo(dtype)
        self.unit, self.least = limits.eps / 2, limits.smallest_normal

    def __call__(self, x: Tensor) -> Tensor:
        coin = torch.randint(2, x.shape) * 2 - 1
        return x + coin * self.unit * torch.where(x == 0, 0, x.abs().clamp(min=self.least))


class _RoundedGradient(torch.autograd.Function):
    """x, whose gradient is rounded."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rounded: Rounding) -> Tensor:
        ctx.rounded = rounded
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return ctx.rounded(grad), None


class _RoundedOnce(torch.autograd.Function):
    """x, rounded; its gradient is as it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rounded: Rounding) -> Tensor:
        return rounded(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


class _WeightedSum(torch.autograd.Function):
    """Rounded weights · value; the backward computes with the weights as they were."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, value: Tensor, rounded: Rounding) -> Tensor:
        for_values = rounded(weights)
        ctx.save_for_backward(for_values, value)
        return for_values @ value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        for_values, value = ctx.saved_tensors
        return grad @ value.mT, for_values.mT @ grad, None


class _SoftmaxSum(torch.autograd.Function):
    """The same of softmax, whose backward reads the output as it was rounded."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, value: Tensor, rounded: Rounding) -> Tensor:
        weights = logits.softmax(-1)
        for_values = rounded(weights)
        out = rounded(for_values @ value)
        ctx.save_for_backward(weights, for_values, value, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        weights, for_values, value, out = ctx.saved_tensors
        d_logits = weights * (grad @ value.mT - (grad * out).sum(-1, keepdim=True))
        return d_logits, for_values.mT @ grad, None


@contextmanager
def rounding_reference(rounded: Rounding) -> Iterator[None]:
    """The reference rounds where the kernels do, all but the gradients at their end."""

    def gradient(x: Tensor) -> Tensor:
        return _RoundedGradient.apply(x, rounded)

    def content_logits(query: Tensor, key: Tensor, scale: float) -> Tensor:
        return gradient(pairs.content_logits(query, key, scale))

    def suffix_sum(x: Tensor) -> Tensor:
        return gradient(pairs.suffix_sum(x))

    def interpolate(z: Tensor, position: Tensor) -> Tensor:
        position = position.clamp(max=z.shape[-1] - 1)
        part = position - position.detach().floor()
        below = z.gather(-1, position.detach().floor().long())
        step = z.gather(-1, position.detach().ceil().long()) - below
        # the same twice: for the gradient of z, and for that of the position
        of_z = gradient(below) + gradient(part.detach() * step)
        return of_z + (part - part.detach()) * step.detach()

    def softmax_sum(logits: Tensor, seen: Tensor, value: Tensor) -> Tensor:
        sees = seen.any(-1, keepdim=True)
        logits = torch.where(seen, logits, float("-inf")).masked_fill(~sees, 0)
        out = _SoftmaxSum.apply(logits, pairs.per_query_head(value, logits), rounded)
        return out.masked_fill(~sees, 0)

    def stick_breaking(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attend_current: bool,
        scale: float | None,
        start: Tensor | None,
        **rest: Any,
    ) -> tuple[Tensor, Tensor]:
        S, T = query.shape[2], key.shape[2]
        logits = content_logits(query, key, pairs.scale_or_default(scale, query))
        seen = pairs.visible(S, T, start, query.device)
        if not attend_current:
            seen = seen & (pairs.distances(S, T, query.device) > 0)
        breaks = F.softplus(logits, threshold=40).masked_fill(~seen, 0)
        weights = (logits - suffix_sum(breaks)).masked_fill(~seen, float("-inf")).exp()
        out = _WeightedSum.apply(weights, pairs.per_query_head(value, query), rounded)
        return _RoundedOnce.apply(out, rounded), (-breaks.sum(-1)).exp()

    reference = dispatch.MODULES["reference"]
    with pytest.MonkeyPatch.context() as patch:
        for module in reference.values():
            if module is pairs:
                continue  # these are made of its functions
            for function in (content_logits, suffix_sum, interpolate, softmax_sum):
                if hasattr(module, function.__name__):
                    patch.setattr(module, function.__name__, function)
        patch.setattr(reference["stick_breaking"], "attend", stick_breaking)
        yield


def margins(op: Op, given: dict[str, Any], exact: Results) -> dict[str, float]:
    """How far results and gradients may be from the exact ones for what is rounded to halves."""
    rounded = Rounding(given["query"].dtype)
    squares = dict.fromkeys(("out", *exact[1]), 0.0)
    for seed in range(THROWS):
        torch.manual_seed(seed)
        with rounding_reference(rounded):
            (out, *_), slopes = exactly(op, given)
        squares["out"] += (out - exact[0][0]).norm().item() ** 2
        for name, gradient in slopes.items():
            if given[name].dtype != torch.float32:
                gradient = Rounding(given[name].dtype)(gradient)
            if name in ("query", "position_query") and {"table", "relative_table"} & given.keys():
                gradient = rounded(gradient)  # that of tables is added to one that was rounded
            squares[name] += (gradient - exact[1][name]).norm().item() ** 2
    return {name: 2 * (square / THROWS) ** 0.5 for name, square in squares.items()}


def too_far(
    op: Op, given: dict[str, Any], results: Results, *, of_terms: bool = False
) -> dict[str, str]:
    """Which of these results and gradients are further from the exact ones than they may be."""
    exact = exactly(op, given)
    terms = small_beside_their_terms(op, given, of_terms=of_terms)
    halves = any(operand.dtype != torch.float32 for operand in floating(given).values())
    return differences(results, exact, terms, margins(op, given, exact) if halves else None)


def check(op: Op, given: dict[str, Any], *, of_terms: bool = False, **options: Any) -> None:
    """The kernels' results and gradients are those of the reference in fp64.

    `of_terms`: see `small_beside_their_terms`.
    """
    results = found(op, given, **options)
    wrong = too_far(op, given | options, results, of_terms=of_terms)
    assert not wrong, wrong
    out, slopes = results
    assert out[0].dtype == given["value"].dtype
    for name, operand in floating(given).items():
        assert slopes[name].dtype == operand.dtype, name
