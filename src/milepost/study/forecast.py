"""What a study will take: time, memory and disk, before anything of it has run.

The time of a cell is its cost (`milepost.study.cell.Work`, arithmetic in a unit of the study's
own) times the seconds that a unit takes. How long that is, in this order:

- what the user says: `tokens_per_second` in training, of a machine that may be another one;
- of costs, how long the study measures for, and how long it takes here to count the first row;
- finished cells of the same arm and row in the folder, if they ran on such a machine as this;
- a measurement here: a few training steps of the arm and row, on real data, of 1, 4, 16, ...
  sequences up to the batch. Where that takes too long, the time of the rest is the straight line
  through the smallest and the largest measured. A single size, or a single layer of a model whose
  layers together take too long, is multiplied up by its cost, which makes a machine look slow;
- for what was not reached in `MEASURING_SECONDS`: the mean of those that were.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from milepost import machine
from milepost.errors import UsageError
from milepost.files import read_object
from milepost.study import work
from milepost.study.cell import Cell
from milepost.study.costs.cell import CostCell
from milepost.study.costs.study import PARTS
from milepost.study.extension.cell import ExtensionCell
from milepost.study.extension.data import Data
from milepost.study.extension.models import fresh_base
from milepost.study.extension.run import loss_of
from milepost.study.plan import Plan
from milepost.study.progress import makespan
from milepost.study.scrolls.cell import ScrollsCell
from milepost.study.work import Work
from milepost.training.device import choose, randomness_of
from milepost.training.loop import build_model
from milepost.training.step import Stepper

MEASURING_SECONDS = 20.0
STEPS = 3
"""So many are timed, after one that is not. The fastest counts: others may use the machine."""

# Bytes of a parameter: in a checkpoint, fp32 and Adam's two moments; in training, a gradient too
KEPT, HELD = 12, 16

AS_OTHERS = "as the others"


@dataclass(frozen=True)
class Speed:
    """What is known of an arm and row.

    Attributes:
        pace: seconds for each unit of cost.
        how: it is known.
        activations: bytes that a training step keeps for its backward pass; None if unknown.
    """

    pace: float
    how: str
    activations: float | None = None


@dataclass(frozen=True)
class Entry:
    """The cells of an arm and row: they differ in their seeds."""

    arm: str
    row: str
    cells: Sequence[Work]
    parameters: int | None
    speed: Speed | None

    @property
    def seconds(self) -> float | None:
        """Of one of them."""
        return None if self.speed is None else self.speed.pace * self.cells[0].cost

    @property
    def trains(self) -> bool:
        """Whether it has a speed in tokens."""
        return _pace(self.cells[0], 1.0) is not None

    @property
    def memory(self) -> float | None:
        """Bytes of one in training: parameters, gradients, moments, and what backward needs."""
        if self.parameters is None:
            return None
        known = None if self.speed is None else self.speed.activations
        return HELD * self.parameters + (known or 0.0)


@dataclass(frozen=True)
class Forecast:
    """What a study will take.

    Attributes:
        entries: by arm and row, in the order in which they begin.
        seconds: of all cells, one after the other; None if nothing is known.
        until_done: with `places` at once.
        places: how many cells run at once.
        threads: of each; None if it is not this machine that they run on.
        device: "cpu" or "cuda".
        load: how many processes were at work on this machine already.
        checkpoints: bytes of those of the largest running cells.
    """

    entries: Sequence[Entry]
    seconds: float | None
    until_done: float | None
    places: int
    threads: int | None
    device: str
    load: float
    checkpoints: float


def forecast(
    grid: Sequence[Work],
    found: Plan,
    directory: Path,
    *,
    places: int,
    threads: int,
    device: str | None = None,
    tokens_per_second: float | None = None,
) -> Forecast:
    """Foretell what the cells that are to run will take.

    Args:
        grid: every cell of the study.
        found: what is to be done of it.
        directory: where results are.
        places: how many cells run at once.
        threads: of each.
        device: that they run on.
        tokens_per_second: in training, instead of measuring.

    Raises:
        UsageError: the device cannot be used here; or the speed is not above 0, or given where
            nothing is trained.
    """
    if tokens_per_second is not None and not 0 < tokens_per_second < float("inf"):
        raise UsageError(
            f"tokens_per_second must be above 0, got {tokens_per_second}: give what "
            f"`milepost train` shows there, or leave it out and it is measured here"
        )
    place = choose(device)
    load = os.getloadavg()[0]
    groups: dict[tuple[str, str], list[Work]] = {}
    for cell in found.todo:
        groups.setdefault((cell.arm, cell.encoding), []).append(cell)
    costs = {key: cell for key, (cell, *_) in groups.items() if isinstance(cell, CostCell)}
    if tokens_per_second is not None:
        how = f"at {tokens_per_second:,.0f} tokens/s"
        speeds = {
            key: Speed(pace, how)
            for key, of in groups.items()
            if (pace := _pace(of[0], tokens_per_second)) is not None
        }
        if groups and not speeds:
            raise UsageError(
                f"tokens_per_second is the speed of training, got {tokens_per_second:g} for a "
                f"study that trains nothing: leave it out"
            )
    elif costs:
        speeds = _costs(costs)
    else:
        speeds = _results(grid, directory, place.type)
        speeds |= _measure(
            {k: of[0] for k, of in groups.items() if k not in speeds}, directory, place, threads
        )
        speeds |= _as_others(groups, speeds)
    entries = [
        Entry(arm, row, of, _parameters(of[0]), speeds.get((arm, row)))
        for (arm, row), of in groups.items()
    ]
    each = {cell.hash: entry.seconds for entry in entries for cell in entry.cells}
    seconds = [known for cell in found.todo if (known := each[cell.hash]) is not None]
    whole = len(seconds) == len(found.todo)
    largest = sorted(KEPT * (entry.parameters or 0) for entry in entries for _ in entry.cells)
    return Forecast(
        entries=entries,
        seconds=sum(seconds) if whole else None,
        until_done=makespan([], seconds, places) if whole else None,
        places=places,
        threads=threads,
        device=place.type,
        load=load,
        checkpoints=sum(largest[-places:]),
    )


def _pace(cell: Work, tokens_per_second: float) -> float | None:
    """Seconds for each unit of cost where so many tokens are trained on in a second."""
    if isinstance(cell, ExtensionCell):
        return 1 / (3 * tokens_per_second)  # the unit is a token read; a step reads three times
    if not isinstance(cell, Cell | ScrollsCell):
        return None  # it trains nothing
    length = cell.settings.length if isinstance(cell, ScrollsCell) else cell.task.max_length - 1
    s = cell.settings
    return s.steps * s.batch * s.accumulate * length / tokens_per_second / cell.training_cost


def _costs(first: dict[tuple[str, str], CostCell]) -> dict[tuple[str, str], Speed]:
    """As long as each measures, and as it takes here to count one."""
    began = time.monotonic()
    next(iter(first.values())).count()
    counting = time.monotonic() - began
    how = f"as long as it measures, and {counting:.1f} s to count it, as the first took"
    return {
        key: Speed(len(PARTS) * cell.sizes.seconds + counting, how) for key, cell in first.items()
    }


def _results(grid: Sequence[Work], directory: Path, device: str) -> dict[tuple[str, str], Speed]:
    """By finished cells in the folder that ran on such a machine as this."""
    paces: dict[tuple[str, str], list[float]] = {}
    for cell in grid:
        path = work.result_file(cell, directory)
        if not path.exists() or work.damage(cell, directory):
            continue
        result = read_object(path, ("seconds", "machine"))
        ran = result["machine"].get("processor"), result["machine"].get("device")
        if ran == (machine.processor(), device):
            paces.setdefault((cell.arm, cell.encoding), []).append(result["seconds"] / cell.cost)
    return {
        key: Speed(statistics.fmean(of), f"by {len(of)} finished here") for key, of in paces.items()
    }


def _as_others(
    groups: dict[tuple[str, str], list[Work]], speeds: dict[tuple[str, str], Speed]
) -> dict[tuple[str, str], Speed]:
    """The rest: by the mean of the arm's rows, or of all."""
    found = {}
    for arm, row in groups.keys() - speeds.keys():
        same = [speed.pace for (other, _), speed in speeds.items() if other == arm]
        paces = same or [speed.pace for speed in speeds.values()]
        if paces:
            found[arm, row] = Speed(statistics.fmean(paces), AS_OTHERS)
    return found


def _measure(
    first: dict[tuple[str, str], Work], directory: Path, device: torch.device, threads: int
) -> dict[tuple[str, str], Speed]:
    """Measure as many as there is time for, the costliest first."""
    found: dict[tuple[str, str], Speed] = {}
    waiting = sorted(first.items(), key=lambda item: -item[1].cost)
    with _threads(threads):
        if waiting and isinstance(cell := waiting[0][1], Cell):
            _steps(_piece(cell, 1, 1), device, 0.0)  # the first of all loads what the rest have
        until = time.monotonic() + MEASURING_SECONDS
        for k, (key, cell) in enumerate(waiting):
            left = until - time.monotonic()
            if left <= 0:
                break
            share = left / (len(waiting) - k)
            if isinstance(cell, Cell):
                found[key] = _of_cell(cell, device, share)
            elif isinstance(cell, ExtensionCell) and cell.settings.checkpoint is None:
                found[key] = _of_extension(cell, directory, device)
                break  # the rows are the same model and differ little: as the others
    return found


def _of_cell(cell: Cell, device: torch.device, seconds: float) -> Speed:
    """By steps of as much of the model and of its batch as there is time for."""
    layers, batch = cell.settings.model["layers"], cell.settings.batch
    until = time.monotonic() + seconds
    sizes = [(1, 1), *((layers, count) for count in (*_fours(batch), batch))]
    points: list[tuple[float, float]] = []
    kept = 0.0
    reached = sizes[0]
    whole = _step_cost(_piece(cell, layers, batch))
    for size in dict.fromkeys(sizes):
        piece = _piece(cell, *size)
        cost = _step_cost(piece)
        if points and time.monotonic() + 2 * _on_a_line(points, cost) > until:
            break
        took, kept = _steps(piece, device, until)
        if reached[0] != size[0]:
            points.clear()  # a single layer says less than all of them
        points.append((cost, took))
        reached = size
    larger = layers * batch / (reached[0] * reached[1])
    return Speed(_on_a_line(points, whole) / whole, _about(reached, layers, batch), kept * larger)


def _fours(batch: int) -> Iterator[int]:
    """1, 4, 16, ... below `batch`."""
    count = 1
    while count < batch:
        yield count
        count *= 4


def _step_cost(cell: Cell) -> float:
    return cell.training_cost / cell.settings.steps


def _on_a_line(points: Sequence[tuple[float, float]], cost: float) -> float:
    """The seconds of a step of that cost, by those of others: (cost, seconds), smallest first."""
    (low, at_low), (high, at_high) = points[0], points[-1]
    if low == high or at_high <= at_low:
        return at_high / high * cost
    return at_high + (at_high - at_low) / (high - low) * (cost - high)


def _piece(cell: Cell, layers: int, batch: int) -> Cell:
    """The cell with so many layers and sequences, and nothing but training."""
    settings = replace(
        cell.settings,
        model={**cell.settings.model, "layers": layers},
        batch=batch,
        accumulate=1,
        train_sequences=None,
        evaluate_every=0,
        compile=False,
    )
    return replace(cell, settings=settings, test_sets={}, probes={})


def _about(size: tuple[int, int], layers: int, batch: int) -> str:
    if size == (layers, batch):
        return "measured"
    of_layers = "" if size[0] == layers else f", {size[0]} of {layers} layers"
    return f"measured with {size[1]} of {batch} sequences{of_layers}"


def _steps(cell: Cell, device: torch.device, until: float) -> tuple[float, float]:
    """Seconds of a training step, and the bytes that it keeps for its backward pass."""
    with randomness_of(cell.seed, device):
        model = build_model(cell.settings, cell.task).to(device)
        stepper = Stepper(cell.settings, cell.task, model, device)
        with _kept(model) as kept:
            _timed(stepper, 0, device)  # which also loads and allocates what all later ones use
        took = [_timed(stepper, 1, device)]
        while len(took) < STEPS and time.monotonic() + took[-1] < until:
            took.append(_timed(stepper, 1 + len(took), device))
    return min(took), float(sum(kept.values()))


def _timed(stepper: Stepper, step: int, device: torch.device) -> float:
    began = time.perf_counter()
    stepper.take(step)
    _synchronise(device)
    return time.perf_counter() - began


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def _kept(model: nn.Module) -> Iterator[dict[int, int]]:
    """Within, the memory that is kept for backward passes is noted: bytes by address."""
    kept: dict[int, int] = {}
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield kept


def _of_extension(cell: ExtensionCell, directory: Path, device: torch.device) -> Speed:
    """By a step of training the base."""
    s = cell.settings
    assert s.length is not None
    model = fresh_base(s, cell.seed).to(device)
    batch = Data(s, directory).batch(cell.seed, "base", 0, s.length, s.factor)
    windows, prompts = (rows.to(device) for rows in batch)
    took = []
    for _ in range(1 + STEPS):
        began = time.perf_counter()
        loss, _parts = loss_of(model, windows, prompts)
        torch.autograd.backward(loss)
        _synchronise(device)
        took.append(time.perf_counter() - began)
    tokens = (len(windows) + len(prompts)) * s.length
    return Speed(min(took[1:]) / (3 * tokens), "measured, a step of the base")


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _parameters(cell: Work) -> int | None:
    """How many parameters the model has; None where that is in a checkpoint."""
    model: Any
    with torch.device("meta"):
        if isinstance(cell, Cell):
            model = build_model(cell.settings, cell.task)
        elif isinstance(cell, ExtensionCell) and cell.settings.checkpoint is None:
            model = fresh_base(cell.settings, cell.seed)
        else:
            return None
    return sum(parameter.numel() for parameter in model.parameters())
