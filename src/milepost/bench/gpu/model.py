"""Tokens per second of a model in training: GPT-2's 124M, with each encoding.

A step is the forward, the cross entropy, the backward and AdamW, with bf16 autocast and without
torch.compile. Beside each encoding the same model runs without one, by PyTorch's attention: what it
costs to exchange that. An encoding whose op has no kernel runs by the reference, as it would for a
user; the record says which.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from milepost import presets
from milepost.bench import baselines
from milepost.bench.gpu.device import Call
from milepost.encoding import find
from milepost.model import Config, Decoder
from milepost.ops import dispatch

PRESET = "text/cope-124m"
# GPT-2's 50257, up to a multiple of 64
VOCABULARY = 50304
TOKENS = 16384


def batch_of(length: int) -> int:
    """How many sequences a step has."""
    return max(1, TOKENS // length)


def by_sdpa(
    *, query: Tensor, key: Tensor, value: Tensor, start: Tensor | None, backend: str
) -> Tensor:
    """PyTorch's attention in the place of an op of milepost."""
    return baselines.sdpa(query, key, value)


def step(
    encoding: str | None,
    length: int,
    device: str,
    preset: str = PRESET,
    vocabulary: int = VOCABULARY,
) -> tuple[Call, int]:
    """A training step of a model, and how many parameters it has; no encoding, by SDPA, if None."""
    config = Config(
        vocab_size=vocabulary,
        **{**presets.model(preset), "max_length": length},
        encoding=encoding or "none",
    )
    with torch.device(device):
        torch.manual_seed(0)
        model = Decoder(config)
        tokens = torch.randint(vocabulary, (batch_of(length), length + 1))
    # an encoding may have made tensors from numbers, which know no device
    model.to(device).train()
    if encoding is None:
        for one in model.encodings:
            one.op = by_sdpa  # type: ignore[assignment]  # a module takes any attribute
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def call() -> object:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotation
        optimizer.step()
        return loss

    return call, sum(p.numel() for p in model.parameters())


def kernel_of(encoding: str) -> str:
    """The backend that computes an encoding's op on a GPU."""
    fused = "triton" in dispatch.backends(find(encoding).op_name)
    return "triton" if fused else "reference"


def written(encoding: str, length: int, parameters: int) -> dict[str, Any]:
    """What was trained, as JSON."""
    return {
        "label": f"124M, {encoding}, T={length}",
        "encoding": encoding,
        "backend": kernel_of(encoding),
        "keys": length,
        "batch": batch_of(length),
        "parameters": parameters,
    }
