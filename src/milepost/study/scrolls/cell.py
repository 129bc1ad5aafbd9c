"""The cells of a study of SCROLLS: train a row before the tasks, then on one task, and score it.

What is trained before is kept in the study's folder, `starts/<hash>`, for the tasks' cells to begin
with. A cell that was stopped while training on a task goes on from its checkpoint; answers are
written again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from milepost.errors import UsageError
from milepost.evaluate import load_run
from milepost.files import write_json
from milepost.model import Decoder
from milepost.scrolls.examples import TRAIN, VALIDATION, read
from milepost.scrolls.kinds import kind_of
from milepost.scrolls.metrics import score
from milepost.scrolls.prompts import Prompts, Questions, written
from milepost.study.cell import Cell, resumable
from milepost.study.scrolls.study import PROBE, START, FineTuning
from milepost.study.study import RESULT, Row
from milepost.study.work import CHECKPOINT_SECONDS, Described, Report, made, result_file, run_folder
from milepost.tasks.task import Task
from milepost.tasks.text import Text
from milepost.tasks.text import encode as bytes_of
from milepost.training import checkpoint, rundir
from milepost.training.checkpoint import Counters
from milepost.training.device import randomness_of
from milepost.training.settings import Settings
from milepost.training.step import Stepper

HISTORY = 20
"""A finished cell keeps the loss of so many steps."""

WRITING = 20.0
"""A token that is written costs about so many that are read in training, one being alone."""


class StartCell(Cell):
    """Trains a row's model before the tasks, and keeps it."""

    @classmethod
    def of(cls, scale: str, row: Row, seed: int, settings: FineTuning) -> StartCell:
        """The cell of a row and seed, as the recipe says but for the settings that are given."""
        given: dict[str, Any] = {
            "corpus": settings.corpus,
            "tokens": settings.tokens,
            "steps": settings.start_steps,
        }
        cell = cls.build(START, scale, row, seed, {k: v for k, v in given.items() if v})
        longest = max(settings.length, int(cell.settings.model["max_length"]))
        model = {**cell.settings.model, "max_length": longest}
        return replace(cell, settings=replace(cell.settings, model=model))

    def ready(self, directory: Path) -> bool:
        """Whether the model is there."""
        return (start_folder(self, directory) / rundir.CHECKPOINT).exists()

    def keep(self, directory: Path) -> None:
        """Put the model where the tasks' cells find it, before the result says that it is there."""
        kept = start_folder(self, directory)
        partial = kept.with_name(f".{kept.name}")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(run_folder(self, directory), partial)
        shutil.rmtree(kept, ignore_errors=True)
        os.replace(partial, kept)


def start_folder(cell: StartCell, directory: Path) -> Path:
    """Where the trained model of a cell is."""
    return directory / "starts" / cell.hash


@dataclass(frozen=True)
class ScrollsCell(Described):
    """One row and seed on one task."""

    row: str
    task: str
    settings: FineTuning
    seed: int
    start: StartCell | None

    result_names = RESULT

    @property
    def arm(self) -> str:
        return self.task

    @property
    def encoding(self) -> str:
        """The name of its row, as study.json keeps it."""
        return self.row

    @property
    def label(self) -> str:
        return f"{self.task}, {self.row}, seed {self.seed}"

    def describe(self) -> dict[str, Any]:
        """Everything that decides its numbers."""
        start = {"row": self.row} if self.start is None else {"start": self.start.hash}
        settings = self.settings.to_dict()
        return {"task": self.task, "seed": self.seed, "settings": settings, **start}

    @property
    def needs(self) -> StartCell | None:
        """The cell that has to be finished before this one can begin."""
        return self.start

    @property
    def limit(self) -> int:
        """The most tokens of an answer."""
        summary = kind_of(self.task).summary
        return self.settings.summary if summary else self.settings.answer

    @property
    def training_cost(self) -> float:
        """About how much work the training is, in the unit of `milepost.study.cell.Cell`."""
        s = self.settings
        return 3.0 * s.steps * s.batch * s.accumulate * self._forward(s.length)

    @property
    def cost(self) -> float:
        """All of it; how many questions there are is not known before the file is read."""
        asked = self.settings.questions or 500
        return self.training_cost + asked * (1 + WRITING * self.limit / self.settings.length) * (
            self._forward(self.settings.length)
        )

    def _forward(self, length: int) -> float:
        if self.start is None:
            return float(length)
        model = self.start.settings.model
        return float(length * model["layers"] * model["dim"] * (12 * model["dim"] + 2 * length))

    def run(
        self,
        directory: Path,
        *,
        report: Callable[[Report], None],
        stop: Callable[[], bool],
        device: str | None = None,
    ) -> None:
        """Train on the task, answer, and write the result, or leave a checkpoint on `stop`."""
        began = time.monotonic()
        model, before, text = load_run(self.begins_with(directory), device)
        encode, decode = tokens_of(text)
        s = self.settings
        prompts = Prompts(self.task, encode, s.length, self.limit)
        data = Path(s.data)
        examples = tuple(read(data, self.task, TRAIN))
        questions = read(data, self.task, VALIDATION)[: s.questions or None]
        training = Questions(prompts, text.vocab_size, examples)
        settings = self.training(before)
        share = self.training_cost / self.cost
        history = self.train(model, settings, training, directory, report, stop, share)
        if history is None:
            return
        model.eval()
        answers = []
        for place, question in enumerate(questions):
            if stop():
                return
            done = share + (1 - share) * place / len(questions)
            report(Report(done, f"question {place + 1} of {len(questions)}"))
            new = written(model, prompts.asked(question.input), self.limit, prompts.end)
            answers.append(decode(new).strip())
        right = [one.outputs for one in questions]
        found = score(self.task, answers, right)
        write_json(
            result_file(self, directory),
            {
                "arm": self.task,
                "row": self.row,
                "settings": {**settings.to_dict(), "scrolls": s.to_dict()},
                "test_sets": {},
                "errors": {},
                "probes": {PROBE: {self.task: {**found, "questions": len(questions)}}},
                "answers": [
                    {
                        "id": one.id,
                        "input": one.input[:400],
                        "right": list(one.outputs),
                        "answer": answer,
                        **score(self.task, [answer], [one.outputs]),
                    }
                    for one, answer in zip(questions[: s.kept], answers, strict=False)
                ],
                "history": [],
                "losses": history,
                "examples": len(examples),
                "seconds": round(time.monotonic() - began, 1),
                **made(next(model.parameters()).device.type),
            },
        )

    def begins_with(self, directory: Path) -> Path:
        """The folder of the run that it goes on with."""
        if self.start is not None:
            return start_folder(self.start, directory)
        folder = Path(self.settings.starts) / self.row
        if not (folder / rundir.CHECKPOINT).exists():
            raise UsageError(
                f"setting 'starts' must be a folder with a run of each row, got none in {folder}: "
                f"put it there, or leave the row out"
            )
        return folder

    def training(self, before: Settings) -> Settings:
        """How it is trained on the task: the model stays as it was, all else is the study's."""
        s = self.settings
        return replace(
            before,
            seed=self.seed,
            steps=s.steps,
            batch=s.batch,
            accumulate=s.accumulate,
            optimizer="adamw",
            lr=s.lr,
            betas=(0.9, 0.999),
            weight_decay=s.weight_decay,
            schedule="linear",
            warmup=s.warmup,
            clip=1.0,
            precision=s.precision,
            train_sequences=None,
            evaluate_every=0,
        )

    def train(
        self,
        model: Decoder,
        settings: Settings,
        task: Task,
        directory: Path,
        report: Callable[[Report], None],
        stop: Callable[[], bool],
        share: float,
    ) -> list[dict[str, float]] | None:
        """Train on the task; some of the losses, or None if it was stopped."""
        device = next(model.parameters()).device
        folder = run_folder(self, directory)
        folder.mkdir(parents=True, exist_ok=True)
        path, losses = folder / rundir.CHECKPOINT, folder / rundir.METRICS
        stepper, counters = Stepper(settings, task, model, device), Counters()
        with randomness_of(self.seed, device), ExitStack() as stack:
            if resumable(folder):
                counters = checkpoint.resume(path, settings, model, stepper.optimizer, device)
            metrics = stack.enter_context(closing(rundir.Metrics(losses, counters.step)))
            resumed_at, saved = share * counters.step / settings.steps, time.monotonic()
            model.train()
            while counters.step < settings.steps:
                taken = stepper.take(counters.step)
                if not taken.finite:
                    raise UsageError(
                        f"setting 'lr' must let the loss stay finite, got {settings.lr} and a loss "
                        f"or gradient that is none at step {counters.step + 1}: lower it"
                    )
                counters.step += 1
                if counters.step % max(1, settings.steps // HISTORY) == 0:
                    metrics.append({"step": counters.step, "loss": round(taken.loss, 5)})
                doing = f"step {counters.step} of {settings.steps}, loss {taken.loss:.3f}"
                report(Report(share * counters.step / settings.steps, doing, resumed_at))
                if stop() or time.monotonic() - saved > CHECKPOINT_SECONDS:
                    metrics.sync()
                    checkpoint.save(path, settings, model, stepper.optimizer, counters, device)
                    saved = time.monotonic()
                    if stop():
                        return None
        return rundir.read_metrics(folder)


def tokens_of(task: Task) -> tuple[Callable[[str], list[int]], Callable[[list[int]], str]]:
    """From text to a run's tokens and back."""
    if not isinstance(task, Text):
        raise UsageError(
            f"a row begins with a run on text, got one on {task.name}: give runs of "
            f"`milepost train --task text`"
        )
    tokenizer = task.tokenizer
    if tokenizer is None:
        return bytes_of, lambda tokens: bytes(tokens).decode(errors="replace")
    return (
        lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        lambda tokens: str(tokenizer.decode(tokens, skip_special_tokens=False)),
    )
