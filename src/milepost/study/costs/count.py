"""The arithmetic of a forward pass, counted: multiply-accumulates, elementwise operations, weights.

The model runs on tensors that have shapes and no values, by the reference backend, whose ops are
the equations written out, and each operation of PyTorch adds what it computes:

    macs          of every matrix product, m·n·k; a FLOP count takes each as two
    elementwise   one for each number that any other floating-point operation puts out: a sum, an
                  exponential or a sigmoid alike; for a reduction one for each number it takes in.
                  Softmax is five (maximum, difference, exponential, sum, quotient), layer norm
                  seven, RMS norm four.

Moving, choosing and comparing numbers is no arithmetic, and neither is arithmetic on indices.

All keys are counted, also those that a query may not see, as profilers count and the tables of
papers do. What the pairs j ≤ i alone need is known too: a count is a polynomial c + a T + b T² of
the length, b is half its second difference, and T (T − 1) / 2 pairs are not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from milepost.errors import UsageError
from milepost.model import Config, Decoder

aten = torch.ops.aten

# Several operations in one, for each number taken in.
COMPOSED: Mapping[Any, int] = {
    aten._softmax: 5,
    aten.native_layer_norm: 7,
    aten.native_group_norm: 7,
    aten._fused_rms_norm: 4,
    aten.log_sigmoid_forward: 1,
}
REDUCTIONS = {aten.sum, aten.mean, aten.cumsum, aten.amax, aten.amin, aten.prod}
PRODUCTS = {aten.mm, aten.bmm}
PRODUCTS_AND_SUMS = {aten.addmm, aten.baddbmm}
# No arithmetic, though some of these are pointwise and put out numbers.
MOVES = {
    *(aten._to_copy, aten._unsafe_view, aten.cat, aten.clone, aten.constant_pad_nd, aten.copy_),
    *(aten.embedding, aten.fill_, aten.flip, aten.gather, aten.index, aten.masked_fill),
    *(aten.nan_to_num, aten.repeat_interleave, aten.stack, aten.where),
    *(aten.arange, aten.empty, aten.full, aten.ones_like, aten.scalar_tensor, aten.zeros_like),
    *(aten.aminmax, aten.promote_types, torch.ops.prim.device),
}


@dataclass(frozen=True)
class Count:
    """What one forward pass of a model computes.

    Attributes:
        length, batch: the tokens of a sequence, and how many sequences.
        parameters: of the model.
        macs: multiply-accumulates of matrix products, with all keys.
        elementwise: other floating-point operations, with all keys.
        pair_macs, pair_elementwise: the same for each pair of a query and a key, over all heads,
            layers and sequences.
        uncounted: operations that are none of those known here: 0 was taken for them.
    """

    length: int
    batch: int
    parameters: int
    macs: int
    elementwise: int
    pair_macs: int
    pair_elementwise: int
    uncounted: tuple[str, ...] = ()

    @property
    def flops(self) -> int:
        """Two for each multiply-accumulate, and the elementwise operations."""
        return 2 * self.macs + self.elementwise

    @property
    def seen(self) -> Count:
        """The same with only the keys that a query sees, j ≤ i."""
        unseen = self.length * (self.length - 1) // 2
        return replace(
            self,
            macs=self.macs - self.pair_macs * unseen,
            elementwise=self.elementwise - self.pair_elementwise * unseen,
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with what the pairs that are seen need."""
        seen = self.seen
        return {
            **asdict(self),
            "uncounted": list(self.uncounted),
            "seen_macs": seen.macs,
            "seen_elementwise": seen.elementwise,
        }


def count(config: Config, length: int, batch: int = 1) -> Count:
    """Count a forward pass in evaluation, without weights or tokens being made.

    Args:
        config: of the model; its backend is not asked, the reference is counted.
        length: tokens of each sequence, 3 at least.
        batch: sequences.

    Raises:
        UsageError: a length below 3, of which no second difference is to be had.
    """
    if length < 3 or batch < 1:
        raise UsageError(
            f"length must be at least 3 and batch at least 1, got {length} and {batch}: raise it"
        )
    # a product of three tensors has one order everywhere, whether opt_einsum is installed or not
    with FakeTensorMode(), torch.backends.opt_einsum.flags(enabled=False):
        model = Decoder(replace(config, backend="reference")).eval()
        now, before, earlier = (_forward(model, length - n, batch) for n in range(3))
    return Count(
        length=length,
        batch=batch,
        parameters=sum(p.numel() for p in model.parameters()),
        macs=now.macs,
        elementwise=now.elementwise,
        pair_macs=_half(now.macs - 2 * before.macs + earlier.macs),
        pair_elementwise=_half(now.elementwise - 2 * before.elementwise + earlier.elementwise),
        uncounted=tuple(sorted(now.uncounted)),
    )


def _half(second_difference: int) -> int:
    half, odd = divmod(second_difference, 2)
    assert not odd, "a count must be a polynomial of the length, with whole coefficients"
    return half


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no annotation
    """Adds up what passes by."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # the same
        self.products = FlopCounterMode(display=False)
        self.elementwise = 0
        self.uncounted: set[str] = set()

    @property
    def macs(self) -> int:
        return self.products.get_total_flops() // 2

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is aten._local_scalar_dense.default:
            return 0  # the model asks whether tokens are in range, and these have no values
        out = func(*args, **(kwargs or {}))
        self.elementwise += self.operations(func, args, out)
        return out

    def operations(self, func: Any, args: tuple[Any, ...], out: Any) -> int:
        """Of one call."""
        packet = func.overloadpacket
        if packet in COMPOSED:
            return COMPOSED[packet] * int(args[0].numel())
        if packet in PRODUCTS_AND_SUMS:
            return int(out.numel())
        if packet in PRODUCTS or packet in MOVES or func.is_view:
            return 0
        if isinstance(out, Tensor):
            if not (out.is_floating_point() or out.is_complex()):
                return 0
            if packet in REDUCTIONS:
                return int(args[0].numel())
            if torch.Tag.pointwise in func.tags:
                return out.numel()
        self.uncounted.add(str(func))
        return 0


def _forward(model: Decoder, length: int, batch: int) -> _Counter:
    tokens = torch.zeros(batch, length, dtype=torch.long)
    counter = _Counter()
    with torch.no_grad(), counter.products, counter:
        model(tokens)
    return counter
