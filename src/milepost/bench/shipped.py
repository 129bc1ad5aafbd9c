"""Which configurations of the GPU kernels are shipped: what `milepost bench compile` compiles.

What is called are the ops themselves, on tensors without memory (PyTorch's meta device), so that
the launches are those of the library, whatever it chooses by dtype and head_dim. Three calls stand
for all shapes, as Triton compiles a kernel anew where an argument is absent, where it is 1, and
where it is a multiple of 16:

    plain     forward and backward; as many queries as keys, 1024; a key head for each query head
    start     the same with fewer queries than keys, numbers that nothing divides, 4 query heads
              for a key head, and a `start` for each query
    decode    forward only; one query, 4096 keys, 4 query heads for a key head

The rule, by target:

    sm_90     plain: every op, in bf16 and fp32, at head_dim 32, 64, 128 and 256;
              start and decode: every op, in bf16, at head_dim 64 and 128;
              approximate gates, in bf16, and fp16, which takes the blocks of bf16, for plain
              attention and CoPE: plain, at head_dim 64
    others    plain: every op, in bf16, at head_dim 64 and 128

To compile all that takes ten minutes on two cores. `make test` compiles a part, `gate`, in five,
and sees that the committed tables have the rest, with the blocks that are launched today:

    sm_90     fp32 at head_dim 64 and 128 only, start and decode at 128 only
    others    head_dim 128 only

`every` is the full product, for each target. Values are as wide as queries and keys.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from milepost.ops import inputs
from milepost.ops.inputs import Inputs
from milepost.ops.triton import _scan

PLAIN, START, DECODE = "plain", "start", "decode"
VARIANTS = (PLAIN, START, DECODE)
DTYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}
HEAD_DIMS = (32, 64, 128, 256)
TUNED = "sm_90"


class Shape(NamedTuple):
    """B batches, H and G heads of queries and keys, S queries, T keys, tables of R rows."""

    B: int
    H: int
    G: int
    S: int
    T: int
    R: int


SHAPES = {
    PLAIN: Shape(2, 8, 8, 1024, 1024, 65),
    START: Shape(2, 8, 2, 999, 1499, 50),
    DECODE: Shape(2, 8, 2, 1, 4096, 65),
}


@dataclass(frozen=True)
class Call:
    """An op called on operands of one dtype and head_dim."""

    op: str
    dtype: str
    head_dim: int
    variant: str = PLAIN

    @property
    def label(self) -> str:
        """As it stands in messages."""
        variant = "" if self.variant == PLAIN else f", {self.variant}"
        return f"{self.op}, {self.dtype}, head_dim {self.head_dim}{variant}"

    def written(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    def launch(self) -> None:
        """Call the op, and for its gradients unless one query decodes."""
        shape, dtype = SHAPES[self.variant], DTYPES[self.dtype]

        def empty(*size: int) -> Tensor:
            return torch.empty(size, dtype=dtype, device="meta", requires_grad=True)

        query = empty(shape.B, shape.H, shape.S, self.head_dim)
        key, value = (empty(shape.B, shape.G, shape.T, self.head_dim) for _ in range(2))
        start = None
        if self.variant == START:
            start = torch.empty(shape.B, shape.S, dtype=torch.int64, device="meta")
        given = OPS[self.op](Operands(shape, empty, query, key, value, start))
        reason = _scan.refusal(query, key, value)
        assert reason is None, f"{self.label}: {reason}"
        # the op's own function would ask the device for its autocast, which this one has not
        if self.variant == DECODE:
            with torch.no_grad():
                _scan.attend(given)
            return
        out, remainder = _scan.attend(given)
        results = [out, remainder] if remainder.requires_grad else [out]
        wanted = [x for x in given.tensors() if x is not None and x.requires_grad]
        torch.autograd.grad(results, wanted, [torch.empty_like(x) for x in results])


class Operands(NamedTuple):
    """What every op takes, and how more of the kind is made."""

    shape: Shape
    empty: Callable[..., Tensor]
    query: Tensor
    key: Tensor
    value: Tensor
    start: Tensor | None

    def table(self) -> Tensor:
        """A vector for each position or distance."""
        return self.empty(self.shape.R, self.query.shape[3])


def _softmax(x: Operands) -> Inputs:
    return inputs.softmax(x.query, x.key, x.value, None, x.start)


def _bias_table(x: Operands) -> Inputs:
    bias = x.empty(x.shape.H, x.shape.R)
    return inputs.bias(x.query, x.key, x.value, bias, None, x.start)


def _bias_dense(x: Operands) -> Inputs:
    bias = x.empty(x.shape.B, x.shape.H, x.shape.S, x.shape.T)
    return inputs.bias(x.query, x.key, x.value, bias, None, x.start)


def _relative(x: Operands) -> Inputs:
    return inputs.relative(x.query, x.key, x.value, x.table(), None, x.start)


def _cope(x: Operands, *, approximate: bool = False, separate: bool = False) -> Inputs:
    return inputs.cope(
        x.query,
        x.key,
        x.value,
        x.table(),
        gate_keys=x.empty(*x.key.shape) if separate else None,
        position_query=x.empty(*x.query.shape) if separate else None,
        relative_table=x.table() if separate and takes_both(x.query) else None,
        scale=None,
        gate_scale=None,
        position_scale=1.0,
        start=x.start,
        skip=True,
        approximate=approximate,
    )


def takes_both(query: Tensor) -> bool:
    """Whether a relative table may stand beside gate keys."""
    most = _scan.MOST_FP32_HEAD_DIM_WITH_BOTH
    return query.dtype != torch.float32 or query.shape[3] <= most


def _cope_approximate(x: Operands) -> Inputs:
    return _cope(x, approximate=True)


def _cope_separate(x: Operands) -> Inputs:
    return _cope(x, separate=True)


def _cope_alibi(x: Operands) -> Inputs:
    slopes = x.empty(x.shape.H)
    return inputs.cope_alibi(x.query, x.key, x.value, slopes, None, None, None, x.start, False)


def _forgetting(x: Operands) -> Inputs:
    decay = x.empty(x.shape.B, x.shape.H, x.shape.T).double()
    return inputs.forgetting(x.query, x.key, x.value, decay, None, x.start, True)


def _stick_breaking(x: Operands) -> Inputs:
    # whether a query sees its own token is a number that the kernels are given, 0 or 1
    own = x.start is not None
    return inputs.stick_breaking(x.query, x.key, x.value, own, None, x.start, True)


# cope_separate has gate keys, queries for positions and, where they may be together, a table of
# distances
OPS: dict[str, Callable[[Operands], Inputs]] = {
    "softmax": _softmax,
    "bias_table": _bias_table,
    "bias_dense": _bias_dense,
    "relative": _relative,
    "cope": _cope,
    "cope_separate": _cope_separate,
    "cope_approximate": _cope_approximate,
    "cope_alibi": _cope_alibi,
    "forgetting": _forgetting,
    "stick_breaking": _stick_breaking,
}
EXACT = tuple(op for op in OPS if op != "cope_approximate")


def shipped(target: str) -> list[Call]:
    """The calls whose kernels are shipped for a target."""
    halves = [Call(op, "bfloat16", size) for op in EXACT for size in (64, 128)]
    if target != TUNED:
        return halves
    plain = [
        Call(op, dtype, size)
        for op in EXACT
        for dtype in ("bfloat16", "float32")
        for size in HEAD_DIMS
    ]
    others = [replace(call, variant=variant) for variant in (START, DECODE) for call in halves]
    more = [
        Call("cope_approximate", "bfloat16", 64),
        Call("softmax", "float16", 64),
        Call("cope", "float16", 64),
    ]
    return [*plain, *others, *more]


def gate(target: str) -> list[Call]:
    """Those that `make test` compiles."""

    def is_in(call: Call) -> bool:
        if target != TUNED or call.variant != PLAIN:
            return call.head_dim == 128
        return call.dtype != "float32" or call.head_dim in (64, 128)

    return [call for call in shipped(target) if is_in(call)]


def every(target: str) -> list[Call]:
    """The full product, the same for each target."""
    return [
        Call(op, dtype, size, variant)
        for op in OPS
        for dtype in DTYPES
        for size in HEAD_DIMS
        for variant in VARIANTS
    ]


WHICH = {"shipped": shipped, "gate": gate, "every": every}


def calls(which: str, target: str, ops: Iterable[str] | None = None) -> list[Call]:
    """Which of `WHICH`, and of these the ones of some ops; of all, if None."""
    found, wanted = WHICH[which](target), None if ops is None else set(ops)
    return [call for call in found if wanted is None or call.op in wanted]
