"""What a study is: a paper's tables, the runs that fill them, and the paper's own figures.

A study trains every encoding (a row) on every `Arm` (a task with its settings), once per seed.
One such run is a cell (`milepost.studies.cell`). A `Table` arranges the cells' test errors as the
paper does: each `Column` is one arm's test set under one metric, and carries the paper's figures
with the place they were printed. Everything here is plain data and imports no torch, so that a
report can be drawn without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.errors import UsageError
from milepost.files import read_object

if TYPE_CHECKING:
    from milepost.studies.cell import Cell

DECLARATION = "study.json"

# What a finished cell's file has, and a failed one's.
RESULT = ("settings", "test_sets", "errors", "history", "seconds", "versions", "machine")
FAILURE = ("reason",)

_DECLARED = {"study": str, "scale": str, "encodings": list, "seeds": int, "cells": list}
_PLANNED = {"arm": str, "encoding": str, "seed": int, "hash": str}


@dataclass(frozen=True)
class Figure:
    """An error in per cent as a paper prints it, with its standard deviation where it gives one."""

    mean: float
    spread: float | None = None


@dataclass(frozen=True)
class Arm:
    """One training condition: a task, and the settings in which it differs from its recipe."""

    name: str
    title: str
    task: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Column:
    """One column: the error of an arm's models on a test set, under the paper's metric."""

    title: str
    arm: str
    test_set: str
    metric: str
    source: str = ""
    paper: Mapping[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """Columns that are read together; `counted` is what the error rates are shares of."""

    name: str
    title: str
    counted: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Study:
    """A paper's table or figure: its arms, its tables, and the rows it is run with by default."""

    name: str
    title: str
    paper: str
    link: str
    encodings: tuple[str, ...]
    arms: tuple[Arm, ...]
    tables: tuple[Table, ...]
    seeds: int = 3
    paper_seeds: int = 3

    @property
    def declared(self) -> dict[str, Any]:
        """What study.json keeps beside the grid."""
        return {}

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def cell(self, scale: str, arm: str, encoding: str, seed: int) -> Cell | None:
        """The cell there, or None where there is none any more."""
        from milepost.studies.cell import Cell

        arms = {one.name: one for one in self.arms}
        return Cell.build(arms[arm], scale, encoding, seed) if arm in arms else None

    def cells(self, scale: str, encodings: Sequence[str], seeds: int) -> list[Cell]:
        """Every run of the grid: all arms and encodings of seed 0, then of seed 1, ..."""
        from milepost import encoding as registry
        from milepost.errors import unknown
        from milepost.studies.cell import Cell

        if seeds < 1:
            raise UsageError(f"seeds must be at least 1, got {seeds}: three give a spread")
        if not encodings:
            raise UsageError(
                "encodings is empty: name at least one, as in --encodings absolute,cope"
            )
        for name in encodings:
            if name not in registry.names():
                raise unknown("encoding", name, registry.names())
        return [
            Cell.build(arm, scale, encoding, seed)
            for seed in range(seeds)
            for arm in self.arms
            for encoding in dict.fromkeys(encodings)
        ]


def read_declaration(directory: Path) -> dict[str, Any]:
    """What study.json in the folder says: the study, its scale, and the cells of its grid."""
    path = directory / DECLARATION
    declared = read_object(path, _DECLARED)
    whole = _typed(declared, _DECLARED) and all(
        isinstance(cell, dict) and _typed(cell, _PLANNED) for cell in declared["cells"]
    )
    if not whole:
        raise UsageError(
            f"{path} is damaged; restore it from a copy, or delete it and run the study again, "
            "which finds the results that are there"
        )
    return declared


def _typed(values: Mapping[str, Any], kinds: Mapping[str, type]) -> bool:
    return all(isinstance(values.get(name), kind) for name, kind in kinds.items())
