"""A study's folder, read back: what each cell measured, and what the tables' entries are.

An entry is the mean over seeds of a test error in per cent, with the sample standard deviation
(n − 1). Whether two encodings differ is judged by twice the standard error of the difference of
their means, 2·√(s₁²/n₁ + s₂²/n₂), and never by less than half a percentage point. By that rule the
paper's figures state which encoding is better where, and each such statement is found here again,
found reversed, or not found (`Comparison`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from milepost import studies
from milepost.errors import UsageError
from milepost.files import read_object
from milepost.studies.study import (
    DECLARATION,
    FAILURE,
    RESULT,
    Column,
    Figure,
    Study,
    Table,
    read_declaration,
)

LEAST_DIFFERENCE = 0.5


@dataclass(frozen=True)
class Cell:
    """One run of the grid: its result, or why there is none."""

    arm: str
    encoding: str
    seed: int
    hash: str
    result: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None


@dataclass(frozen=True)
class Entry:
    """One entry of a table: an encoding's errors in per cent, one for each seed that finished."""

    values: tuple[float, ...]
    seeds: int
    failed: int
    paper: Figure | None

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Comparison:
    """The paper has `better` below `worse` in a column: what was found here."""

    table: Table
    column: Column
    better: str
    worse: str
    verdict: Literal["found", "not found", "reversed", "not measured"]


@dataclass(frozen=True)
class Results:
    """A study's folder: the grid it declares and what each of its cells came to."""

    study: Study
    scale: str
    encodings: tuple[str, ...]
    seeds: int
    cells: tuple[Cell, ...]
    strays: int

    def of(self, arm: str, encoding: str) -> list[Cell]:
        """The cells of an arm and encoding, one per seed."""
        return [cell for cell in self.cells if (cell.arm, cell.encoding) == (arm, encoding)]

    def entry(self, column: Column, encoding: str) -> Entry:
        cells = self.of(column.arm, encoding)
        return Entry(
            values=tuple(
                100 * error
                for cell in cells
                if (error := cell_error(cell, column.test_set, column.metric)) is not None
            ),
            seeds=self.seeds,
            failed=sum(cell.failure is not None for cell in cells),
            paper=column.paper.get(encoding),
        )

    @property
    def finished(self) -> list[tuple[Cell, dict[str, Any]]]:
        """The cells that have a result, with it."""
        return [(cell, cell.result) for cell in self.cells if cell.result is not None]

    @property
    def failed(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.failure is not None]

    @cached_property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Every difference between two encodings that the paper's figures show."""
        found = []
        for table in self.study.tables:
            for column in table.columns:
                for pair in combinations(self.encodings, 2):
                    if not all(name in column.paper for name in pair):
                        continue
                    better, worse = sorted(pair, key=lambda name: column.paper[name].mean)
                    n = self.study.paper_seeds
                    if differ(_summary(column.paper[better], n), _summary(column.paper[worse], n)):
                        verdict = self._verdict(column, better, worse)
                        found.append(Comparison(table, column, better, worse, verdict))
        return tuple(found)

    def _verdict(
        self, column: Column, better: str, worse: str
    ) -> Literal["found", "not found", "reversed", "not measured"]:
        low, high = self.entry(column, better), self.entry(column, worse)
        if min(len(low.values), len(high.values)) < 2:
            return "not measured"
        assert low.mean is not None
        assert high.mean is not None
        if not differ(summary(low), summary(high)):
            return "not found"
        return "found" if low.mean < high.mean else "reversed"


Summary = tuple[float, float, int]  # mean, standard deviation, seeds


def _summary(figure: Figure, seeds: int) -> Summary:
    return figure.mean, figure.spread or 0.0, seeds


def summary(entry: Entry) -> Summary:
    """An entry of two or more seeds as (mean, standard deviation, seeds)."""
    assert entry.mean is not None
    assert entry.spread is not None
    return entry.mean, entry.spread, len(entry.values)


def differ(one: Summary, other: Summary) -> bool:
    """Whether two means differ by more than twice the standard error of their difference."""
    (mean, spread, n), (other_mean, other_spread, other_n) = one, other
    error = math.sqrt(spread**2 / n + other_spread**2 / other_n)
    return abs(mean - other_mean) > max(2 * error, LEAST_DIFFERENCE)


def cell_error(cell: Cell, test_set: str, metric: str) -> float | None:
    """A cell's error rate in [0, 1], or None where it has none."""
    if cell.result is None:
        return None
    value = cell.result["errors"].get(test_set, {}).get(metric)
    return None if value is None else float(value)


def load(directory: Path) -> Results:
    """Read a study's folder as `milepost study` left it, finished or not."""
    if not (directory / DECLARATION).exists():
        raise UsageError(
            f"{directory} holds no study: expected study.json in it, as `milepost study NAME "
            f"--out {directory}` writes"
        )
    declared = read_declaration(directory)
    study = studies.load(declared["study"])
    if not isinstance(study, Study):
        raise UsageError(
            f"{directory} holds {study.name}, which has no tables of test errors: read it with "
            f"milepost.report.extension.load"
        )
    cells, strays = read_cells(directory, declared, RESULT)
    return Results(
        study=study,
        scale=declared["scale"],
        encodings=tuple(declared["encodings"]),
        seeds=declared["seeds"],
        cells=cells,
        strays=strays,
    )


def read_cells(
    directory: Path, declared: Mapping[str, Any], names: Iterable[str]
) -> tuple[tuple[Cell, ...], int]:
    """The cells of a grid with what became of each, and how many other results lie there.

    Args:
        directory: the study's folder.
        declared: what its study.json says.
        names: what a result must have.
    """
    cells = tuple(
        Cell(
            **{key: cell[key] for key in ("arm", "encoding", "seed", "hash")},
            result=(result := _read(directory / "cells" / f"{cell['hash']}.json", names)),
            failure=None
            if result is not None
            else _read(directory / "failed" / f"{cell['hash']}.json", FAILURE),
        )
        for cell in declared["cells"]
    )
    known = {cell.hash for cell in cells}
    return cells, sum(path.stem not in known for path in (directory / "cells").glob("*.json"))


def _read(path: Path, names: Iterable[str]) -> dict[str, Any] | None:
    """The JSON object in a file, or None where there is no file."""
    return read_object(path, names) if path.exists() else None


def percent(value: float) -> str:
    """One decimal, and more only where one would show zero for what is not."""
    for decimals in (1, 2):
        if value == 0 or abs(value) >= 0.95 * 10**-decimals:
            return f"{value:.{decimals}f}"
    return f"{value:.3f}"


def mean_and_spread(values: Sequence[float]) -> str:
    """`12.3 ± 4.5`; a single value has no spread."""
    if not values:
        return "–"
    mean = percent(statistics.fmean(values))
    return f"{mean} ± {percent(statistics.stdev(values))}" if len(values) > 1 else mean
