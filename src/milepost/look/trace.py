"""Run a model on one row of tokens, and keep what each layer of attention was asked.

The model runs as it always does, kernels and all. Its encodings have an observer meanwhile
(`milepost.attention.Call`), and what the op of each comes to is learnt by asking it for that in
place of an answer (`milepost.ops.dispatch.run`). Arrays are made from it later, by `Layer`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from milepost.attention import Call
from milepost.encoding import Encoding
from milepost.errors import UsageError
from milepost.look.layer import OPS, Layer
from milepost.shapes import check_integers, shape


@dataclass(frozen=True, eq=False)
class Trace:
    """What a model did with a row of tokens: `tokens` (S,), and its layers, first to last."""

    tokens: Int[Tensor, " S"]
    layers: tuple[Layer, ...]


@torch.no_grad()
def trace(model: nn.Module, tokens: Tensor, *, shift: int = 0) -> Trace:
    """See what each layer's attention does with a row of tokens.

    Args:
        model: a `milepost.model.Decoder`, or any other model whose layers attend by
            `milepost.attention.attend`, such as those of `milepost.hf`; in evaluation mode.
        tokens: (S,) or (1, S) integers.
        shift: the number of the first token, as in `Decoder.forward`.

    Raises:
        UsageError: tokens are of another shape, the model is being trained, has no such layers,
            or has an encoding whose op is none of ours.
    """
    check_integers("tokens", tokens, "token ids")
    row = tokens[None] if tokens.ndim == 1 else tokens
    if row.ndim != 2 or row.shape[0] != 1 or not row.shape[1]:
        raise UsageError(
            f"tokens must be one row, (time,) or (1, time), got {shape(tokens)}: trace the rows of "
            f"a batch one by one"
        )
    if model.training:
        raise UsageError("model must be in evaluation mode, got training: call eval()")
    row = row.to(next(model.parameters()).device)
    layers: list[Layer] = []
    with observing(model, lambda call: layers.append(layer_of(call))):
        model(row, **({"shift": shift} if shift else {}))
    if not layers:
        raise UsageError(
            f"model must attend by milepost.attention.attend, got {type(model).__name__}, no layer "
            f"of which does: give a milepost.model.Decoder, or a model of milepost.hf"
        )
    return Trace(row[0], tuple(layers))


@contextmanager
def observing(model: nn.Module, observer: Callable[[Call], None]) -> Iterator[None]:
    """Within, every layer of the model tells `observer` of each of its calls, first to last."""
    encodings = [module for module in model.modules() if isinstance(module, Encoding)]
    before = [encoding.observer for encoding in encodings]
    try:
        for encoding in encodings:
            encoding.observer = observer
        yield
    finally:
        for encoding, previous in zip(encodings, before, strict=True):
            encoding.observer = previous


def layer_of(call: Call) -> Layer:
    """What a call comes to in terms of an op."""
    asked: list[tuple[str, dict[str, Any]]] = []

    def learn(op: str, **operands: Any) -> Any:
        asked.append((op, operands))
        return call.attended

    call.op(**call.arguments, backend=learn)
    if len(asked) != 1 or asked[0][0] not in OPS:
        raise UsageError(
            f"the encoding of every layer must call one op of milepost.ops, got "
            f"{[op for op, _ in asked]} of {type(call.encoding).__name__}: only {', '.join(OPS)} "
            f"can be traced"
        )
    op, operands = asked[0]
    # parameters would bring their gradients along
    operands = {
        name: given.detach() if isinstance(given, Tensor) else given
        for name, given in operands.items()
    }
    output = call.attended[0] if isinstance(call.attended, tuple) else call.attended
    return Layer(op, operands, output[0], call.state)
