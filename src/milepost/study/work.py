"""What a cell of any kind of study is to those who run it, and where it leaves what it makes.

A finished cell is `cells/<hash>.json` in the study's folder, written whole; a failed one is
`failed/<hash>.json`. While it runs, `runs/<hash>/` holds its checkpoints, and `runs/<hash>.log`
what it printed.
"""

from __future__ import annotations

import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch

from milepost import machine
from milepost.errors import UsageError
from milepost.files import digest, read_object, write_json

CHECKPOINT_SECONDS = 20.0
"""So much work is lost at most when a cell is killed."""


class Work(Protocol):
    """What the pool has to know of a cell, of whatever kind of study (`milepost.study.run`)."""

    @property
    def arm(self) -> str: ...

    @property
    def encoding(self) -> str:
        """Its row."""

    @property
    def seed(self) -> int: ...

    @property
    def label(self) -> str:
        """What people are shown."""

    @property
    def hash(self) -> str:
        """The name of its files: a digest of everything that decides its numbers."""

    @property
    def cost(self) -> float:
        """About how much work it is, in a unit that all cells of the study share."""

    @property
    def needs(self) -> Work | None:
        """The cell that has to be finished before this one can begin."""

    @property
    def result_names(self) -> tuple[str, ...]:
        """What its result has."""

    @property
    def failure(self) -> Mapping[str, Any]:
        """What the file of a failure says of it, beside the reason."""

    def ready(self, directory: Path) -> bool:
        """Whether what other cells take from it is there, beside its result."""

    def run(
        self,
        directory: Path,
        *,
        report: Callable[[Report], None],
        stop: Callable[[], bool],
        device: str | None = None,
    ) -> None:
        """Write its result, or leave a checkpoint once `stop` is true."""


class Described(ABC):
    """A cell whose files are named after what decides its numbers."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Everything that decides its numbers."""

    @cached_property
    def hash(self) -> str:
        """The name of the cell's files: a digest of everything that decides its numbers."""
        return digest(self.describe())

    @property
    def failure(self) -> dict[str, Any]:
        """What the file of a failed cell says of it."""
        return self.describe()

    def ready(self, directory: Path) -> bool:
        """No other cell takes anything from it."""
        return True


@dataclass(frozen=True)
class Report:
    """How far a running cell is: the share of its work that is done, and what it does now.

    `resumed_at` is the share that an earlier process had done.
    """

    share: float
    doing: str
    resumed_at: float = 0.0


def write_failure(cell: Work, directory: Path, reason: str) -> None:
    """Record why a cell has no result."""
    write_json(failure_file(cell, directory), {**cell.failure, "reason": reason})


def result_file(cell: Work, directory: Path) -> Path:
    """Where the cell's result is, once it has one."""
    return directory / "cells" / f"{cell.hash}.json"


def damage(cell: Work, directory: Path) -> str | None:
    """What is wrong with the cell's result, if it has one and it cannot be read."""
    path = result_file(cell, directory)
    if path.exists():
        try:
            read_object(path, cell.result_names)
        except UsageError as error:
            return str(error)
    return None


def failure_file(cell: Work, directory: Path) -> Path:
    """Where it says why the cell failed, if it did."""
    return directory / "failed" / f"{cell.hash}.json"


def run_folder(cell: Work, directory: Path) -> Path:
    """The cell's run directory."""
    return directory / "runs" / cell.hash


def log_file(cell: Work, directory: Path) -> Path:
    """What the cell's process prints."""
    return directory / "runs" / f"{cell.hash}.log"


def made(device: str, **versions: str) -> dict[str, Any]:
    """Which versions and what machine a result comes from.

    Args:
        device: the kind of it, or a GPU's name.
        versions: of what was used beside torch.
    """
    return {
        "versions": {**machine.versions(), **versions, "commit": machine.commit()},
        "machine": {
            "system": platform.system(),
            "processor": machine.processor(),
            "kernels": machine.kernels(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "device": device,
        },
    }
