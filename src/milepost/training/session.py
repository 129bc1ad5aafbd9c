"""A session: what `train` does between taking a run directory and giving it back.

The order of writing keeps the directory sound at every moment. The first checkpoint comes before
anything else, and from then on there is always one to resume from; the metrics up to a checkpoint
are on the disk before it is; and what lies beyond it is cut off when the run is resumed.

Of several processes all take every step, and the first alone keeps the metrics.
"""

import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from torch import nn

from milepost.errors import UsageError, unknown
from milepost.files import write_json
from milepost.tasks.task import Task
from milepost.training import checkpoint, rundir
from milepost.training.checkpoint import Counters
from milepost.training.data import sequences
from milepost.training.score import error_rates
from milepost.training.settings import Settings
from milepost.training.step import Step, Stepper

PATIENCE = 10
"""So many steps in a row without a finite loss and gradient end a run."""

VALIDATION = "validation", 0
"""Split and seed of the sequences on which runs, of whatever seed, are measured in training."""

WINDOW = 50
"""The speed is that of so many latest steps."""


class DivergenceError(UsageError):
    """The loss or its gradient was not finite, again and again."""


@dataclass(frozen=True)
class Progress:
    """How far a run is, after each step.

    Attributes:
        step: steps done.
        steps: steps in all.
        loss: of this step; NaN or infinite if the step was skipped.
        tokens_per_second: over the latest steps.
        seconds_left: at that speed.
        skipped: steps skipped so far.
    """

    step: int
    steps: int
    loss: float
    tokens_per_second: float
    seconds_left: float
    skipped: int


@dataclass(frozen=True)
class Outcome:
    """How a run, or this session of it, ended.

    Attributes:
        model: in its final state.
        step: steps done.
        loss: the last that was finite, None if none was.
        skipped: steps skipped for a loss or gradient that was not finite.
        seconds: time spent, over all sessions.
        stopped: whether the run was stopped before its last step; it can be resumed.
    """

    model: nn.Module
    step: int
    loss: float | None
    skipped: int
    seconds: float
    stopped: bool


class Session:
    """A run between the taking of its directory and its end, or the next stop."""

    def __init__(
        self, settings: Settings, task: Task, out: Path, stepper: Stepper, resume: bool
    ) -> None:
        """Begin the run, or put everything into the state in which it was left."""
        self.settings = settings
        self.task = task
        known = task.test_sets()
        for name in settings.evaluate_on:
            if name not in known:
                raise unknown(f"test set of the {task.name} task", name, known)
        self.beside = {name: known[name].task for name in settings.evaluate_on}
        self.out = out
        self.stepper = stepper
        self.processes = stepper.processes
        self.counters = Counters()
        if resume:
            self.counters = checkpoint.resume(
                out / rundir.CHECKPOINT,
                settings,
                stepper.model,
                stepper.optimizer,
                stepper.device,
                stepper.processes,
            )
            self.saved = self.counters.step
        else:
            self.processes.lead(lambda: rundir.refuse_existing(out))
            # a folder that cannot hold a checkpoint is found out now, and not after an hour
            self._write()
        self.metrics: rundir.Metrics | None = None
        self.processes.lead(self._open)
        self.earlier = self.counters.seconds
        self.began = self.saved_at = time.perf_counter()
        self.latest = deque([(self.began, self.counters.tokens)], maxlen=WINDOW + 1)

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.counters.step == self.settings.steps

    @property
    def seconds_unsaved(self) -> float:
        """For how long the checkpoint has been the same."""
        return time.perf_counter() - self.saved_at

    @property
    def outcome(self) -> Outcome:
        """What `train` returns now."""
        counters = self.counters
        return Outcome(
            model=self.stepper.model,
            step=counters.step,
            loss=counters.loss,
            skipped=counters.skipped,
            seconds=counters.seconds,
            stopped=not self.finished,
        )

    def advance(self) -> Progress:
        """Take one step and add its line to the metrics."""
        taken = self.stepper.take(self.counters.step)
        self._count(taken)
        line: dict[str, Any] = {
            "step": self.counters.step,
            "loss": taken.loss if taken.finite else None,
            "lr": taken.lr,
            "grad_norm": taken.grad_norm if taken.finite else None,
            "tokens": self.counters.tokens,
            "seconds": round(self.counters.seconds, 3),
            "skipped": self.counters.skipped,
        }
        if self._evaluates():
            line["errors"] = self._errors(self.task)
            if self.beside:
                line["on"] = {name: self._errors(task) for name, task in self.beside.items()}
        if self.metrics is not None:
            self.metrics.append(line)
        if self.counters.skipped_in_a_row == PATIENCE:
            self._give_up(taken)
        return self._progress(taken)

    def save(self) -> None:
        """Bring the checkpoint up to date, after the metrics that belong to it."""
        if self.saved != self.counters.step:
            if self.metrics is not None:
                self.metrics.sync()
            self._write()
        self.saved_at = time.perf_counter()

    def close(self) -> None:
        """Close the metrics."""
        if self.metrics is not None:
            self.metrics.close()

    def _open(self) -> None:
        write_json(self.out / rundir.CONFIG, self.settings.to_dict())
        self.metrics = rundir.Metrics(self.out / rundir.METRICS, self.counters.step)

    def _write(self) -> None:
        checkpoint.save(
            self.out / rundir.CHECKPOINT,
            self.settings,
            self.stepper.model,
            self.stepper.optimizer,
            self.counters,
            self.stepper.device,
            self.processes,
        )
        self.saved = self.counters.step

    def _count(self, taken: Step) -> None:
        counters = self.counters
        counters.step += 1
        counters.tokens += taken.tokens
        counters.seconds = self.earlier + time.perf_counter() - self.began
        if taken.finite:
            counters.loss = taken.loss
            counters.skipped_in_a_row = 0
        else:
            counters.skipped += 1
            counters.skipped_in_a_row += 1

    def _evaluates(self) -> bool:
        every = self.settings.evaluate_every
        return every > 0 and (self.counters.step % every == 0 or self.finished)

    def _errors(self, task: Task) -> dict[str, float]:
        split, seed = VALIDATION
        batches = sequences(task, seed, split, self.settings.evaluate_sequences)
        return error_rates(self.stepper.model, batches, self.stepper.device, self.processes)

    def _progress(self, taken: Step) -> Progress:
        self.latest.append((time.perf_counter(), self.counters.tokens))
        (earlier, tokens), (now, tokens_now) = self.latest[0], self.latest[-1]
        seconds_per_step = (now - earlier) / (len(self.latest) - 1)
        return Progress(
            step=self.counters.step,
            steps=self.settings.steps,
            loss=taken.loss,
            tokens_per_second=(tokens_now - tokens) / (now - earlier),
            seconds_left=seconds_per_step * (self.settings.steps - self.counters.step),
            skipped=self.counters.skipped,
        )

    def _give_up(self, taken: Step) -> NoReturn:
        path = self.out / rundir.NONFINITE
        content = {
            "step": self.counters.step,
            "loss": taken.loss,
            "grad_norm": taken.grad_norm,
            "tokens": [batch.tokens for batch in taken.batches],
            "scored": [batch.scored for batch in taken.batches],
        }
        self.processes.lead(lambda: checkpoint.save_tensors(path, content))
        settings = self.settings
        raise DivergenceError(
            f"loss or gradient was not finite {PATIENCE} steps in a row, up to step "
            f"{self.counters.step}: the last batch is in {path}. Train again with a lower lr (it "
            f"was {settings.lr:g}), a longer warmup (it was {settings.warmup}), clip (it was "
            f"{settings.clip}) or precision fp32 (it was {settings.precision})"
        )
