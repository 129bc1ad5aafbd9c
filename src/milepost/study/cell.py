"""One run of a study: train, test on every test set, probe, write one result file.

A cell is its training settings, the sizes of its test sets and its probes; its name is the hash of
these, so the same cell is found again by any study, and a change of any setting is another cell.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

from milepost import tasks
from milepost.errors import UsageError, unknown
from milepost.evaluate import evaluate, load_run
from milepost.files import write_json
from milepost.model import Decoder
from milepost.study import probes
from milepost.study.study import RESULT, Arm, Row
from milepost.study.work import CHECKPOINT_SECONDS, Described, Report, made, result_file, run_folder
from milepost.tasks.task import Task
from milepost.training import recipes, rundir
from milepost.training.loop import train
from milepost.training.session import Progress
from milepost.training.settings import Settings


@dataclass(frozen=True)
class Cell(Described):
    """One run of the grid.

    Attributes:
        arm: the name of its arm.
        encoding: the name of its row; the settings have the encoding itself.
        settings: of the training.
        test_sets: how many sequences of each are asked.
        probes: what else is measured: kind and settings, by the name that the result has it under.
    """

    arm: str
    encoding: str
    settings: Settings
    test_sets: Mapping[str, int]
    probes: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)

    needs = None
    result_names = RESULT

    @classmethod
    def build(
        cls, arm: Arm, scale: str, row: Row, seed: int, overrides: Mapping[str, Any] | None = None
    ) -> Self:
        """The cell of an arm, row and seed, as the recipe says for this scale."""
        recipe = arm.recipe or arm.task
        task_changes, changes = _apart(arm.task, overrides or {})
        settings = recipes.settings(
            recipe,
            scale,
            row.encoding,
            seed,
            task_settings={**arm.given("settings", scale), **task_changes},
            encoding_options=row.given("options", scale),
            model={**arm.given("model", scale), **row.given("model", scale)},
            **{**arm.given("training", scale), **row.given("training", scale), **changes},
        )
        known = recipes.test_sequences(recipe, scale)
        asked = known if arm.test_sets is None else arm.test_sets
        return cls(
            arm=arm.name,
            encoding=row.name,
            settings=settings,
            test_sets={name: known[name] for name in asked},
            probes={
                probe.name or probe.kind: (probe.kind, probe.settings(scale))
                for probe in arm.probes
            },
        )

    @property
    def seed(self) -> int:
        return self.settings.seed

    @property
    def label(self) -> str:
        return f"{self.arm}, {self.encoding}, seed {self.seed}"

    def describe(self) -> dict[str, Any]:
        """Everything that decides its numbers."""
        decisive: dict[str, Any] = {
            "settings": self.settings.to_dict(),
            "test_sets": dict(self.test_sets),
        }
        if self.probes:  # left out where there are none: results are named after these hashes
            decisive["probes"] = self.probes_as_values
        return decisive

    @property
    def probes_as_values(self) -> dict[str, Any]:
        """The probes as plain values."""
        return {
            name: {"kind": kind, "settings": dict(settings)}
            for name, (kind, settings) in self.probes.items()
        }

    @property
    def task(self) -> Task:
        """The task it is trained on."""
        return tasks.build(self.settings.task, **self.settings.task_settings)

    @property
    def training_cost(self) -> float:
        """About how much arithmetic the training is; a step is three forward passes."""
        settings = self.settings
        sequences = 3 * settings.steps * settings.batch * settings.accumulate
        if settings.evaluate_every:
            measured = settings.evaluate_sequences * (1 + len(settings.evaluate_on))
            sequences += settings.steps // settings.evaluate_every * measured
        return sequences * self._forward_cost(self.task.max_length)

    @property
    def test_costs(self) -> dict[str, float]:
        """The same for each test set."""
        known = self.task.test_sets()
        return {
            name: count * self._forward_cost(known[name].task.max_length)
            for name, count in self.test_sets.items()
        }

    @property
    def probe_costs(self) -> dict[str, float]:
        """The same for each probe."""
        return {
            name: sum(
                count * self._forward_cost(length)
                for count, length in probes.load(kind).reads(self.task, **settings)
            )
            for name, (kind, settings) in self.probes.items()
        }

    @cached_property
    def cost(self) -> float:
        """All of it, to order cells and foretell their time."""
        tests = {**self.test_costs, **self.probe_costs}
        return self.training_cost + sum(tests.values())

    def _forward_cost(self, length: int) -> float:
        model = self.settings.model
        return float(length * model["layers"] * model["dim"] * (12 * model["dim"] + 2 * length))

    @property
    def failure(self) -> dict[str, Any]:
        """What the file of a failure says of it, beside the reason."""
        return {"arm": self.arm, "settings": self.settings.to_dict()}

    def keep(self, directory: Path) -> None:
        """Nothing has to outlive the run but its result."""

    def run(
        self,
        directory: Path,
        *,
        report: Callable[[Report], None],
        stop: Callable[[], bool],
        device: str | None = None,
    ) -> None:
        """Write its result, or leave a checkpoint once `stop` is true."""
        run(self, directory, report=report, stop=stop, device=device)


def run(
    cell: Cell,
    directory: Path,
    *,
    report: Callable[[Report], None],
    stop: Callable[[], bool],
    device: str | None = None,
) -> None:
    """Train and test the cell and write its result, or leave a checkpoint once `stop` is true."""
    training_share = cell.training_cost / cell.cost
    resumed_at = math.nan

    def on_step(progress: Progress) -> None:
        nonlocal resumed_at
        step_share = training_share / progress.steps
        if math.isnan(resumed_at):
            resumed_at = step_share * (progress.step - 1)
        doing = f"step {progress.step} of {progress.steps}, loss {progress.loss:.3f}"
        report(Report(step_share * progress.step, doing, resumed_at))

    folder = run_folder(cell, directory)
    resume = resumable(folder)
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    outcome = train(
        cell.settings,
        folder,
        resume=resume,
        checkpoint_every=CHECKPOINT_SECONDS,
        progress=on_step,
        stop=stop,
        device=device,
    )
    began = time.monotonic()
    share = training_share
    if math.isnan(resumed_at):
        resumed_at = share
    errors: dict[str, Any] = {}
    known = cell.task.test_sets()
    for name, cost in cell.test_costs.items():
        if outcome.stopped or stop():
            return
        report(Report(share, f"testing, {name}", resumed_at))
        errors[name] = evaluate(outcome.model, known[name], sequences=cell.test_sets[name])
        share += cost / cell.cost
    found: dict[str, Any] = {}
    model = cast(Decoder, outcome.model.eval())
    for name, cost in cell.probe_costs.items():
        if outcome.stopped or stop():
            return
        report(Report(share, f"measuring, {name}", resumed_at))
        kind, settings = cell.probes[name]
        found[name] = probes.load(kind).measure(
            model, cell.task, seed=cell.seed, stop=stop, **settings
        )
        share += cost / cell.cost
    if outcome.stopped or stop():
        return
    cell.keep(directory)
    write_json(
        result_file(cell, directory),
        {
            "arm": cell.arm,
            "row": cell.encoding,
            "settings": cell.settings.to_dict(),
            "test_sets": {
                name: {
                    "sequences": count,
                    "length": known[name].task.max_length,
                    "about": known[name].about,
                }
                for name, count in cell.test_sets.items()
            },
            "errors": errors,
            **({"probes": found, "probed": cell.probes_as_values} if found else {}),
            "history": history(folder, cell.task.headline),
            "parameters": sum(p.numel() for p in outcome.model.parameters()),
            "seconds": round(outcome.seconds + time.monotonic() - began, 1),
            **made(next(outcome.model.parameters()).device.type),
        },
    )


def _apart(task: str, overrides: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A user's settings: those of the task, and those of the training."""
    known, of_task = settable(task), tasks.settings_of(task)
    for name in overrides:
        if name not in known:
            raise unknown("setting", name, known)
    mine = {name: value for name, value in overrides.items() if name in of_task}
    return mine, {name: value for name, value in overrides.items() if name not in of_task}


def settable(task: str) -> set[str]:
    """The names of what a user may set: of the task, and of its training."""
    of_training = {f.name for f in fields(Settings)} - {*recipes.DECIDED}
    return {*tasks.settings_of(task), *of_training}


def resumable(folder: Path) -> bool:
    """Whether the folder holds a checkpoint that can be read; one that is damaged is given up."""
    if not (folder / rundir.CHECKPOINT).exists():
        return False
    try:
        load_run(folder, "cpu")
    except UsageError as error:
        print(f"starting over: {error}", flush=True)
        return False
    return True


def history(folder: Path, headline: str) -> list[dict[str, Any]]:
    """The in-distribution error at each step at which it was measured, and the loss there.

    Those of `evaluate_on`'s test sets are beside it, if there are any.
    """
    return [
        {
            "step": line["step"],
            "loss": line["loss"],
            "error": line["errors"][headline],
            **(
                {"on": {name: e[headline] for name, e in line["on"].items()}}
                if "on" in line
                else {}
            ),
        }
        for line in rundir.read_metrics(folder)
        if "errors" in line
    ]
