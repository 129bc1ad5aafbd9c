"""A study's folder, read back: what each cell measured, and what the tables' entries are.

An entry is the mean over seeds of what was measured, in the table's unit, with the sample standard
deviation (n − 1). Whether two rows differ is judged by twice the standard error of the difference
of their means, 2·√(s₁²/n₁ + s₂²/n₂), and never by less than the unit's least difference: half a
point of an error rate. By that rule the paper's figures state which row is better where, and each
such statement is found here again, found reversed, or not found (`Comparison`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from milepost import studies
from milepost.errors import UsageError
from milepost.files import read_object
from milepost.study.study import (
    DECLARATION,
    ERROR,
    FAILURE,
    RESULT,
    Column,
    Figure,
    Study,
    Table,
    Unit,
    read_declaration,
)


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
    """One entry of a table: a row's values in the table's unit, one for each seed that finished.

    `trained` is whether the row is trained on that arm at all; `refused` how many models could not
    read what they were asked.
    """

    values: tuple[float, ...]
    seeds: int
    failed: int
    paper: Figure | None
    trained: bool = True
    refused: int = 0

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Comparison:
    """The paper has `better` ahead of `worse` in a column: what was found here."""

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
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """What the rows are."""
        plain = all(isinstance(row, str) for row in self.study.rows)
        return "encodings" if plain else "rows"

    def of(self, arm: str, encoding: str) -> list[Cell]:
        """The cells of an arm and encoding, one per seed."""
        return [cell for cell in self.cells if (cell.arm, cell.encoding) == (arm, encoding)]

    def entry(self, column: Column, encoding: str) -> Entry:
        cells = self.of(column.arm, encoding)
        factor = self.unit(column).factor
        return Entry(
            values=tuple(
                factor * value for cell in cells if (value := cell_value(cell, column)) is not None
            ),
            seeds=self.seeds,
            failed=sum(cell.failure is not None for cell in cells),
            paper=column.paper.get(encoding),
            trained=bool(cells),
            refused=sum(refused(cell, column) for cell in cells),
        )

    def unit(self, column: Column) -> Unit:
        """That of the column's table."""
        return next((table.unit for table in self.study.tables if column in table.columns), ERROR)

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
                    means = {name: column.paper[name].mean for name in pair}
                    better, worse = sorted(pair, key=means.__getitem__, reverse=table.unit.higher)
                    n = self.study.paper_seeds
                    low, high = (_summary(column.paper[name], n) for name in (better, worse))
                    if differ(low, high, table.unit):
                        verdict = self._verdict(column, better, worse)
                        found.append(Comparison(table, column, better, worse, verdict))
        return tuple(found)

    def _verdict(
        self, column: Column, better: str, worse: str
    ) -> Literal["found", "not found", "reversed", "not measured"]:
        ahead = self.ahead(column, better, worse)
        if ahead is None:
            return "not measured"
        return {1: "found", 0: "not found", -1: "reversed"}[ahead]  # type: ignore[return-value]

    def ahead(self, column: Column, one: str, other: str) -> int | None:
        """1 if a row is better than another here, -1 if worse, 0 if neither; None if unknown."""
        first, second = self.entry(column, one), self.entry(column, other)
        if min(len(first.values), len(second.values)) < 2:
            return None
        unit = self.unit(column)
        if not differ(summary(first), summary(second), unit):
            return 0
        return 1 if (summary(first)[0] > summary(second)[0]) == unit.higher else -1


Summary = tuple[float, float, int]  # mean, standard deviation, seeds


def _summary(figure: Figure, seeds: int) -> Summary:
    return figure.mean, figure.spread or 0.0, seeds


def summary(entry: Entry) -> Summary:
    """An entry of two or more seeds as (mean, standard deviation, seeds)."""
    assert entry.mean is not None
    assert entry.spread is not None
    return entry.mean, entry.spread, len(entry.values)


def differ(one: Summary, other: Summary, unit: Unit = ERROR) -> bool:
    """Whether two means differ by more than twice the standard error of their difference."""
    (mean, spread, n), (other_mean, other_spread, other_n) = one, other
    error = math.sqrt(spread**2 / n + other_spread**2 / other_n)
    least = max(unit.least, unit.relative * min(abs(mean), abs(other_mean)))
    return abs(mean - other_mean) > max(2 * error, least)


def cell_value(cell: Cell, column: Column) -> float | None:
    """What a cell measured for a column, or None where it has nothing."""
    if not column.probe:
        return cell_error(cell, column.test_set, column.metric)
    value = probed(cell, column.probe).get(column.test_set, {}).get(column.metric)
    return None if value is None else float(value)


def refused(cell: Cell, column: Column) -> bool:
    """Whether the model could not read what the column asks."""
    return "refused" in probed(cell, column.probe).get(column.test_set, {})


def probed(cell: Cell, probe: str) -> dict[str, Any]:
    """What a probe found, by its keys."""
    found = {} if cell.result is None else cell.result.get("probes", {}).get(probe, {})
    return dict(found)


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
        given=declared.get("settings", {}),
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


def number(value: float, unit: Unit = ERROR) -> str:
    """As tables of the unit show it."""
    return percent(value) if unit.decimals is None else f"{value:.{unit.decimals}f}"


def mean_and_spread(values: Sequence[float], unit: Unit = ERROR) -> str:
    """`12.3 ± 4.5`; a single value has no spread."""
    if not values:
        return "–"
    mean = number(statistics.fmean(values), unit)
    return f"{mean} ± {number(statistics.stdev(values), unit)}" if len(values) > 1 else mean
