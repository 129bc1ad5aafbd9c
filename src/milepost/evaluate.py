"""Error rates of a model, or of a training run, on any test set and length; perplexity of text.

A test set's sequences are a function of its task, the seed and their number, so every model is
asked the same questions. They are drawn apart from all training data (`milepost.tasks.task`).

Of the task `text` the test documents are said from beginning to end (`milepost.perplexity`). The
same tokens are scored at every window; what differs is how much is read before each.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from milepost import corpus, tasks
from milepost.errors import UsageError, unknown
from milepost.model import Decoder
from milepost.perplexity import Perplexity, perplexity, words
from milepost.tasks.task import Batch, Task, TestSet
from milepost.tasks.text import Text
from milepost.training import checkpoint, rundir
from milepost.training.data import sequences as drawn
from milepost.training.device import choose, randomness_of
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


def evaluate_text(
    model: torch.nn.Module,
    task: Task,
    *,
    windows: Sequence[int],
    stride: int | None = None,
    tokens: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, dict[str, Any]]:
    """How well a model says the test documents of its task `text`, by the length of the window.

    Of each window, by its length as a string: `nats` and `perplexity` of a token,
    `word_perplexity`, `bits_per_byte`; `tokens`, `bytes` and `words`, of which they are; and
    `by_position`, the nats of the tokens said from up to so many, `position`. A perplexity that no
    float can hold is None, and so is a position without tokens. A window that the model refuses,
    or that has more tokens than the documents, has `{"refused": why}` alone.

    Args:
        model: called with tokens (B, S), returns logits (B, S, vocab), in evaluation mode.
        task: the one it was trained on.
        windows: how many tokens are read at a time.
        stride: how far a window is from the next, if that is less than the window; None for
            windows side by side.
        tokens: score about so many, the first; all if None. They are made a multiple of the longest
            window that fits, which side by side is never cut short then; a shorter one may be, at
            the end.
        stop: asked before each window whether to leave it there.
    """
    if not isinstance(task, Text):
        raise UsageError(
            f"task must be text for a perplexity, got {task.name}: it has error rates, by evaluate"
        )
    for name, numbers in (("windows", windows), ("stride", [stride]), ("tokens", [tokens])):
        for number in numbers:
            whole = isinstance(number, int) and not isinstance(number, bool) and number >= 1
            if not whole and (number is not None or name == "windows"):
                raise UsageError(f"{name} must be a whole number of at least 1, got {number!r}")
    text = task.text(corpus.TEST, None if tokens is None else tokens + 1)
    scored = len(text) - 1
    if scored < 1:
        raise UsageError(
            f"corpus: expected a test text of 2 tokens or more, got {len(text)} in {task.corpus}: "
            f"give one with more documents"
        )
    longest = max((window for window in windows if window <= scored), default=scored)
    text = text[: scored // longest * longest + 1]
    said = task.bytes_of(text[1:])
    line_ends = corpus.line_ends_are_words(task.corpus)
    units = {"bytes": len(said), "words": words(said, line_ends=line_ends)}
    device = next(model.parameters(), torch.empty(0)).device
    results: dict[str, dict[str, Any]] = {}
    for window in windows:
        if stop():
            break
        if window > scored:
            reason = f"the test documents have {scored} tokens to say: shorten the window"
            results[str(window)] = {"refused": reason}
            continue
        try:
            # positions drawn at random are the same for every model
            with randomness_of(0, device):
                found = perplexity(
                    model,
                    text.to(device),
                    window=window,
                    stride=min(stride or window, window),
                    batch=max(1, min(64, PAIRS // window**2)),
                )
        except UsageError as error:
            results[str(window)] = {"refused": str(error)}
        else:
            results[str(window)] = _of_units(found, **units)
    return results


def _of_units(found: Perplexity, *, bytes: int, words: int) -> dict[str, Any]:
    def finite(value: float | None) -> float | None:
        return value if value is not None and math.isfinite(value) else None

    position, by_position = found.by_bucket()
    return {
        "nats": finite(found.nats),
        "perplexity": finite(found.perplexity),
        "word_perplexity": finite(found.per(words)) if words else None,
        "bits_per_byte": finite(found.bits_per(bytes)) if bytes else None,
        "tokens": found.tokens,
        "bytes": bytes,
        "words": words,
        "position": position,
        "by_position": [finite(value) for value in by_position],
    }


def evaluate_text_run(
    folder: Path,
    *,
    windows: Sequence[int] = (),
    stride: int | None = None,
    sequences: int | None = None,
    task_settings: Mapping[str, Any] | None = None,
    device: str | None = None,
) -> dict[str, dict[str, Any]]:
    """The same of a run.

    Args:
        folder: the run directory.
        windows: the trained one, twice and four times as long if empty. The trained one is one
            token less than a sequence, of which the last is not read.
        stride: see `evaluate_text`.
        sequences: score so many trained windows, or as many as there are; all if None.
        task_settings: replace those of the task, as {"corpus": "python-code"}.
        device: the first GPU, or else the CPU, if None.
    """
    _check(0, sequences, 1)
    model, _, task = load_run(folder, device)
    known = windows or [times * task.max_length - 1 for times in (1, 2, 4)]
    tokens = None if sequences is None else max(*known, sequences * (task.max_length - 1))
    task = _altered(task, task, task_settings or {})
    return evaluate_text(model, task, windows=known, stride=stride, tokens=tokens)


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
