"""What takes the place of kernels, of FlexAttention, of a model and of torch.cuda on a CPU."""

from types import SimpleNamespace
from typing import Any

import torch

from milepost.bench.gpu.model import step
from milepost.ops import dispatch

OPS = ("softmax", "bias", "relative", "cope", "cope_alibi", "forgetting", "stick_breaking")


def reference(op: str) -> SimpleNamespace:
    """A kernel for an op that is the reference's own function."""
    attend = dispatch.implementation("reference", op).attend

    def call(**operands: Any) -> Any:
        for name in dispatch.UNKNOWN_TO_REFERENCE:
            operands.pop(name, None)
        return attend(**operands)

    return SimpleNamespace(attend=call, refusal=lambda **operands: None)


def written_out(
    query: Any, key: Any, value: Any, score_mod: Any = None, block_mask: Any = None
) -> Any:
    """FlexAttention in plain PyTorch: its own has no backward on CPUs."""
    B, H, S, D = query.shape
    b, h, i = (torch.arange(n).view([-1] + [1] * k) for n, k in ((B, 3), (H, 2), (S, 1)))
    j = torch.arange(key.shape[2])
    score = query @ key.mT / D**0.5
    if score_mod is not None:
        score = score_mod(score, b, h, i, j)
    return score.masked_fill(~block_mask.mask_mod(b, h, i, j), -torch.inf).softmax(-1) @ value


def tiny_step(encoding: str | None, length: int, device: str) -> Any:
    """A training step of a model that a CPU gets through, in place of `model.step`."""
    return step(encoding, length, device, preset="flip-flop/mini", vocabulary=7)


class Stream:
    """A stand-in for streams, graphs and events of torch.cuda."""

    def __init__(self, *_: Any, **given: Any) -> None:
        assert given in ({}, {"enable_timing": True})
        self.replayed = 0

    def __enter__(self) -> None:
        pass

    __exit__ = wait_stream = record = synchronize = lambda *_: None

    def elapsed_time(self, end: Any) -> float:
        return 40.0  # milliseconds

    def replay(self) -> None:
        self.replayed += 1
