"""All that takes part in a case, and why something does not.

milepost          the op, by the backend that is measured
sdpa              torch.nn.functional.scaled_dot_product_attention, causal, in the same dtype
plain             softmax_attention by the same backend: what the encoding itself costs
listing           CoPE's Listing 1 (cope only)
x-transformers    CoPE with the class of x-transformers (cope only, where it is installed)
reference         the op by the reference backend (on request; always in decoding)
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from milepost import ops
from milepost.bench import baselines
from milepost.bench.cases import SUBJECTS, Case, Operands, floating, operands

MILEPOST, SDPA, PLAIN = "milepost", "sdpa", "plain"
LISTING, X_TRANSFORMERS, REFERENCE = "listing", "x-transformers", "reference"

# a dense bias, its gradient, and the bias of each head before it is put together
BIAS_BUFFERS = 3


@dataclass(frozen=True)
class Setting:
    """What is the same in every case of a run."""

    backend: str
    dtype: torch.dtype
    memory_limit: int
    """In bytes: baselines that hold all pairs must stay below it."""
    reference: bool = False
    left_out: dict[str, str] = field(default_factory=dict)
    """Contenders that take part in no case, with the reason."""


def parts(result: Any) -> tuple[Tensor, ...]:
    """What an op returned, as a tuple."""
    return result if isinstance(result, tuple) else (result,)


class Contender:
    """A call with its operands, ready to be run forward, or forward and backward."""

    def __init__(self, call: Callable[..., Any], given: Operands) -> None:
        leaves = {name: x.detach().requires_grad_() for name, x in floating(given).items()}
        self.call = call
        self.given = given | leaves
        self.leaves = list(leaves.values())
        self.directions: tuple[Tensor, ...] | None = None

    def forward(self) -> Any:
        """The output, without anything kept for a backward."""
        with torch.no_grad():
            return self.call(**self.given)

    def forward_and_backward(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The results, and the gradients of all the floating operands, made anew each time."""
        results = parts(self.call(**self.given))
        gradients = torch.autograd.grad(
            results, self.leaves, self.directions_of(results), materialize_grads=True
        )
        return results, gradients

    def directions_of(self, results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """What the results' gradients are taken along: the same at every call."""
        if self.directions is None:
            device = results[0].device
            generator = torch.Generator(device).manual_seed(1)
            self.directions = tuple(
                torch.randn(result.shape, generator=generator, device=device).to(result.dtype)
                for result in results
            )
        return self.directions


def by(op: str, backend: str) -> Callable[..., Any]:
    """The op of that name by a backend."""
    return partial(SUBJECTS[op].call, backend=backend)


def too_large(name: str, case: Case, setting: Setting) -> str | None:
    """Why a contender's memory for all pairs does not fit; None if it does."""
    shape, limit = case.shape, setting.memory_limit
    by_reference = name == REFERENCE or (name in (MILEPOST, PLAIN) and setting.backend == REFERENCE)
    buffers = baselines.PAIR_BUFFERS.get(REFERENCE if by_reference else name, 0)
    if case.op == "bias_dense":
        buffers += BIAS_BUFFERS
    needed = 4 * buffers * shape.B * shape.H * shape.S * shape.T
    if needed <= limit:
        return None
    return f"needs about {needed / 2**30:.1f} GiB, the limit is {limit / 2**30:.1f} GiB"


def names(case: Case, setting: Setting) -> tuple[list[str], dict[str, str]]:
    """Who takes part in a case, and who else would, with the reason why not."""
    wanted = [MILEPOST, SDPA]
    if case.op != "softmax":
        wanted.append(PLAIN)
    if case.op == "cope" and not case.decode:
        wanted += [LISTING, X_TRANSFORMERS]
    if (setting.reference or case.decode) and setting.backend != REFERENCE:
        wanted.append(REFERENCE)
    reasons = {
        name: reason
        for name in wanted
        if (reason := setting.left_out.get(name) or too_large(name, case, setting))
    }
    return [name for name in wanted if name not in reasons], reasons


def build(name: str, case: Case, setting: Setting, given: Operands) -> Contender:
    """The contender of that name on these operands of the case."""
    plain = {one: given[one] for one in ("query", "key", "value")}
    if name == MILEPOST:
        return Contender(by(case.op, setting.backend), given)
    if name == REFERENCE:
        return Contender(by(case.op, REFERENCE), given)
    if name == SDPA:
        return Contender(baselines.sdpa, plain)
    if name == PLAIN:
        return Contender(partial(ops.softmax_attention, backend=setting.backend), plain)
    if name == LISTING:
        return Contender(baselines.listing, given)
    assert name == X_TRANSFORMERS
    rows = given["table"].shape[0]
    return Contender(baselines.XTransformers(rows, case.head_dim, given["query"].shape[1]), given)


def build_all(case: Case, setting: Setting) -> tuple[dict[str, Contender], dict[str, str]]:
    """Everyone who takes part, on the same operands, and the reasons why others do not."""
    taking_part, reasons = names(case, setting)
    if MILEPOST in reasons:
        return {}, reasons
    given = operands(case.op, case.gates, case.shape, setting.dtype)
    return {name: build(name, case, setting, given) for name in taking_part}, reasons
