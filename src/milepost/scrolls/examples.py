"""The files of SCROLLS as they are published, on this machine: nothing is downloaded.

A folder has one for each task, with a file for each split, and in it a JSON object on each line:

    DATA/qasper/train.jsonl       {"id": ..., "pid": ..., "input": ..., "output": ...}
    DATA/qasper/validation.jsonl

A question with several right answers stands there several times, under one id. The test split is
published without answers, so that it cannot be scored here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.errors import UsageError
from milepost.files import cannot_read
from milepost.scrolls.kinds import KINDS, kind_of

TRAIN, VALIDATION = "train", "validation"
FIELDS = ("id", "input", "output")


@dataclass(frozen=True)
class Example:
    """A question, or a text to summarise, with all answers that are right."""

    id: str
    input: str
    outputs: tuple[str, ...]


def available(folder: Path) -> tuple[str, ...]:
    """The tasks that the folder has both splits of."""
    return tuple(
        task
        for task in KINDS
        if all(path_of(folder, task, split).is_file() for split in (TRAIN, VALIDATION))
    )


def path_of(folder: Path, task: str, split: str) -> Path:
    """Where the split is."""
    return Path(folder) / task / f"{split}.jsonl"


def read(folder: Path, task: str, split: str) -> list[Example]:
    """The examples of a split in the order of the file, those of one id together.

    Raises:
        UsageError: no such task, or its file is missing, is not JSON, lacks a field or an answer,
            or holds nothing.
    """
    kind_of(task)
    path = path_of(folder, task, split)
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise cannot_read(path, error) from error
    found: dict[str, Example] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        one = _parsed(path, number, line)
        before = found.get(one["id"])
        outputs = (*(before.outputs if before else ()), one["output"])
        found[one["id"]] = Example(one["id"], before.input if before else one["input"], outputs)
    if not found:
        raise UsageError(f"{path} must have an example on each line, got none: give another file")
    return [*found.values()]


def _parsed(path: Path, number: int, line: bytes) -> Mapping[str, Any]:
    try:
        one = json.loads(line)
    except ValueError as error:
        raise UsageError(
            f"{path}, line {number}: expected a JSON object, got what is not JSON ({error}): "
            f"restore the file from a copy"
        ) from error
    fields = one if isinstance(one, dict) else {}
    missing = [name for name in FIELDS if not isinstance(fields.get(name), str)]
    if missing:
        raise UsageError(
            f"{path}, line {number}: expected text under {', '.join(FIELDS)}, got none under "
            f"{', '.join(missing)}: the test split has no answers, take {VALIDATION}"
        )
    return fields
