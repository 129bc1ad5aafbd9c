"""One cell of a study of costs: count a row, then time it beside RoPE, and write both down.

Both models stand in one process and take turns, in alternating order, since a machine's speed
drifts within seconds: a ratio is of two measurements a moment apart. It is the ratios that say
something; seconds are kept as what they are, those of one machine on one day.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from milepost import machine
from milepost.cache import LayerCache
from milepost.encoding import Encoding
from milepost.files import write_json
from milepost.model import Block, Config, Decoder
from milepost.ops import dispatch
from milepost.study.costs.count import Count, count
from milepost.study.costs.study import ARM, MEASURED, PARTS, Sizes
from milepost.study.study import Row
from milepost.study.work import Described, Report, made, result_file
from milepost.training.device import choose, randomness_of

WARM_CALLS = 2
KERNELS = {"cpu": "native", "cuda": "triton"}

Call = Callable[[], object]


@dataclass(frozen=True)
class CostCell(Described):
    """One row, counted, and timed beside RoPE."""

    row: Row
    base: Row
    sizes: Sizes
    counted: Mapping[str, Any]
    counted_length: int
    seed: int

    arm = ARM
    needs = None
    result_names = MEASURED
    cost = 1.0  # a cell's time is given by its sizes, whatever its encoding

    def __post_init__(self) -> None:
        """Check the model's settings, so that a mistake is named before anything runs."""
        _config(self.sizes.model, self.sizes.length, self.row)

    @property
    def encoding(self) -> str:
        """The name of its row, as study.json keeps it."""
        return self.row.name

    @property
    def label(self) -> str:
        return f"{self.row.name}, seed {self.seed}"

    def describe(self) -> dict[str, Any]:
        """What is counted and timed."""
        return {
            "row": _described(self.row),
            "base": _described(self.base),
            "sizes": self.sizes.to_dict(),
            "counted": {"model": dict(self.counted), "length": self.counted_length},
            "seed": self.seed,
        }

    def run(
        self,
        directory: Path,
        *,
        report: Callable[[Report], None],
        stop: Callable[[], bool],
        device: str | None = None,
    ) -> None:
        """Write the result; nothing once `stop` is true, as there is little to go on from."""
        began = time.monotonic()
        place = choose(device or self.sizes.device or None)
        report(Report(0.0, "counting"))
        counted = self.count()
        with randomness_of(self.seed, place):
            ours, base = (self.model(row, place) for row in (self.row, self.base))
            shape = self.sizes.batch, self.sizes.length
            tokens = torch.randint(ours.config.vocab_size, shape, device=place)
            measured: dict[str, Any] = {}
            for done, (name, part) in enumerate(_PARTS.items()):
                report(Report((1 + done) / (1 + len(PARTS)), f"timing, {PARTS[name]}"))
                taken = paired(part(ours, tokens), part(base, tokens), self.sizes, place, stop)
                if taken is None:
                    return
                measured[name] = said_of(*taken, tokens=tokens.numel())
        write_json(
            result_file(self, directory),
            {
                "settings": self.describe(),
                "counted": counted.to_dict(),
                "measured": measured,
                "kernels": kernels_of(ours, place),
                "seconds": round(time.monotonic() - began, 1),
                **made(name_of(place)),
            },
        )

    def count(self) -> Count:
        """What a forward pass of the row computes."""
        return count(_config(self.counted, self.counted_length, self.row), self.counted_length)

    def model(self, row: Row, device: torch.device) -> Decoder:
        """A fresh model of the row, of the size that is timed."""
        dtype = torch.bfloat16 if self.sizes.precision == "bf16" else torch.float32
        return Decoder(_config(self.sizes.model, self.sizes.length, row)).to(device, dtype)


def _described(row: Row) -> dict[str, Any]:
    return {"name": row.name, "encoding": row.encoding, "options": dict(row.options)}


def _config(model: Mapping[str, Any], length: int, row: Row) -> Config:
    return Config.from_dict(
        {
            "max_length": length,
            **model,
            "encoding": row.encoding,
            "encoding_options": dict(row.options),
        }
    )


def kernels_of(model: Decoder, device: torch.device) -> str:
    """The backend that has a kernel for the encoding's op on this device, or the reference."""
    fused = KERNELS[device.type]
    there = device.type != "cpu" or machine.kernels() is not None
    ops = {cast(Encoding, encoding).op_name for encoding in model.encodings}
    return fused if there and all(fused in dispatch.backends(op) for op in ops) else "reference"


def name_of(device: torch.device) -> str:
    """A GPU's name; "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def attention(model: Decoder, tokens: Tensor) -> Call:
    """The first layer's attention: projections, encoding, op, and the encoding's update."""
    model.eval()
    block = cast(Block, model.blocks[0])
    encoding = cast(Encoding, model.encodings[model.layer_encoding[0]])
    positions = model.positions(tokens, None, None, None)
    with torch.no_grad():
        x, state = encoding.begin(model.embedding(tokens), positions)
        normed = block.attention_norm(x)

    def call() -> object:
        with torch.inference_mode():
            return block.attention(normed, encoding, positions, state, LayerCache())

    return call


def forward(model: Decoder, tokens: Tensor) -> Call:
    """A forward pass without gradients."""
    model.eval()

    def call() -> object:
        with torch.inference_mode():
            return model(tokens)

    return call


def training(model: Decoder, tokens: Tensor) -> Call:
    """Forward, cross entropy and backward; the optimizer's step is the same for every row."""
    model.train()

    def call() -> object:
        model.zero_grad()
        logits = model(tokens)[:, :-1]
        loss = cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        torch.autograd.backward(loss)
        return loss

    return call


_PARTS = {"attention": attention, "forward": forward, "training": training}


def paired(
    ours: Call,
    base: Call,
    sizes: Sizes,
    device: torch.device,
    stop: Callable[[], bool],
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[list[float], list[float]] | None:
    """The seconds of a call of each, round by round; None once `stop` is true.

    Every second round runs backwards, so that neither always comes after the other.
    """
    taken: dict[Call, list[float]] = {ours: [], base: []}

    def seconds(call: Call) -> float:
        _synchronise(device)
        began = clock()
        for _ in range(sizes.calls):
            call()
        _synchronise(device)
        return (clock() - began) / sizes.calls

    for call in taken:
        for _ in range(WARM_CALLS):
            call()
    collecting = gc.isenabled()
    gc.disable()
    try:
        began = clock()
        for done in range(sizes.rounds):
            if stop():
                return None
            if done >= sizes.least and clock() - began >= sizes.seconds:
                break
            for call in (ours, base) if done % 2 == 0 else (base, ours):
                taken[call].append(seconds(call))
    finally:
        if collecting:
            gc.enable()
    return taken[ours], taken[base]


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def said_of(ours: list[float], base: list[float], *, tokens: int) -> dict[str, Any]:
    """Every round's ratio, and the medians."""
    return {
        "ratios": [round(one / other, 4) for one, other in zip(ours, base, strict=True)],
        "seconds": statistics.median(ours),
        "base_seconds": statistics.median(base),
        "tokens_per_second": round(tokens / statistics.median(ours)),
    }
