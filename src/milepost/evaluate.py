"""Error rates of a model, or of a training run, on any test set and length.

A test set's sequences are a function of its task, the seed and their number, so every model is
asked the same questions. They are drawn apart from all training data (`milepost.tasks.task`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from milepost import tasks
from milepost.errors import UsageError, unknown
from milepost.model import Decoder
from milepost.tasks.task import Batch, Task, TestSet
from milepost.training import checkpoint, rundir
from milepost.training.data import sequences as drawn
from milepost.training.device import choose
from milepost.training.loop import build_model
from milepost.training.score import error_rates
from milepost.training.settings import SEED_LIMIT, Settings

TEST = "test"

PAIRS = 2**24
"""The most (query, key) pairs of one head that the model is given at once: 64 rows of 512."""


def evaluate(
    model: torch.nn.Module,
    test_set: TestSet,
    *,
    seed: int = 0,
    sequences: int | None = None,
    batch: int = 64,
) -> dict[str, float]:
    """The error rates of `milepost.training.score`, with how many sequences and tokens they are of.

    Args:
        model: called with tokens (B, S), returns logits (B, S, vocab), on its own device.
        test_set: what to ask.
        seed: of the sequences.
        sequences: how many, the test set's own number if None. Fewer are the first of more.
        batch: the most sequences that the model is given at once. Long ones come in smaller
            batches, of `PAIRS` (query, key) pairs at most; which sequences they are never changes.
    """
    count = test_set.sequences if sequences is None else sequences
    _check(seed, count, batch)
    device = next(model.parameters(), torch.empty(0)).device
    asked = drawn(test_set.task, seed, TEST, count)
    return error_rates(model, _bounded(asked, batch), device)


def load_run(folder: Path, device: str | None = None) -> tuple[Decoder, Settings, Task]:
    """The model of a run as its checkpoint has it, ready for use; its settings; its task."""
    path = Path(folder) / rundir.CHECKPOINT
    content = checkpoint.load(path)
    settings: Settings = content["settings"]
    task = tasks.build(settings.task, **settings.task_settings)
    model = build_model(settings, task)
    checkpoint.load_model(path, content, model)
    return model.to(choose(device)).eval(), settings, task


def evaluate_run(
    folder: Path,
    test_sets: Iterable[str] = (),
    *,
    task_settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    sequences: int | None = None,
    batch: int = 64,
    device: str | None = None,
) -> dict[str, dict[str, Any]]:
    """The error rates of a run, by the name of the test set.

    Args:
        folder: the run directory.
        test_sets: names of test sets of the run's task; all of them if empty. A model that cannot
            read one of all has `{"refused": why}` for it.
        task_settings: replace those of the test sets, as {"length": 4096} for flip-flop.
        seed: see `evaluate`.
        sequences: see `evaluate`.
        batch: see `evaluate`.
        device: the first GPU, or else the CPU, if None.
    """
    _check(seed, sequences, batch)
    model, _, task = load_run(folder, device)
    known = task.test_sets()
    named = list(test_sets)
    for name in named:
        if name not in known:
            raise unknown(f"test set of the {task.name} task", name, known)
    results: dict[str, dict[str, Any]] = {}
    for name in named or known:
        test_set = replace(known[name], task=_altered(known[name].task, task, task_settings or {}))
        try:
            results[name] = evaluate(model, test_set, seed=seed, sequences=sequences, batch=batch)
        except UsageError as error:
            if named:
                raise
            results[name] = {"refused": str(error)}
    return results


def _check(seed: int, sequences: int | None, batch: int) -> None:
    for name, value in (("sequences", sequences), ("batch", batch)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1, got {value}")
    if not 0 <= seed < SEED_LIMIT:
        raise UsageError(f"seed must be from 0 to {SEED_LIMIT - 1}, got {seed}")


def _altered(tested: Task, trained: Task, changes: Mapping[str, Any]) -> Task:
    values = {f.name: getattr(tested, f.name) for f in fields(tested)}
    task = tasks.build(tested.name, **{**values, **changes})
    if task.vocab != trained.vocab:
        raise UsageError(
            f"task_settings {dict(changes)} give {task.vocab_size} tokens, the model was trained "
            f"on {trained.vocab_size}: leave the vocabulary as it was"
        )
    return task


def _bounded(batches: Iterable[Batch], most: int) -> Iterator[Batch]:
    """The same sequences in batches that the model has room for."""
    for batch in batches:
        count, length = batch.inputs.shape
        rows = max(1, min(most, PAIRS // length**2))
        for first in range(0, count, rows):
            part = slice(first, first + rows)
            yield Batch(batch.tokens[part], batch.scored[part])
