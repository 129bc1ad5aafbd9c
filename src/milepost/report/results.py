"""What the entries of a study's tables are, and how they differ.

An entry is the mean over seeds of what was measured, in the table's unit, with the sample standard
deviation (n − 1). Whether two rows differ is judged by twice the standard error of the difference
of their means, 2·√(s₁²/n₁ + s₂²/n₂), and never by less than the unit's least difference: half a
point of an error rate. By that rule the paper's figures state which row is better where, and each
such statement is found here again, found reversed, or not found (`Comparison`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from milepost.report.folder import Cell, Folder
from milepost.study.study import ERROR, RESULT, Column, Figure, Study, Table, Unit


@dataclass(frozen=True)
class Entry:
    """One entry of a table: a row's values in the table's unit, one for each seed that finished.

    `trained` is whether the row is trained on that arm at all; `refused` how many models could not
    read what they were asked; `finished` how many have a result, also where it has no such number:
    without positions of its own a row has none that could move.
    """

    values: tuple[float, ...]
    seeds: int
    failed: int
    paper: Figure | None
    trained: bool = True
    refused: int = 0
    finished: int = 0

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
class Results(Folder):
    """The folder of a study that has tables."""

    reads = Study
    measured = RESULT

    study: Study

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
            finished=sum(cell.result is not None for cell in cells),
        )

    def unit(self, column: Column) -> Unit:
        """That of the column's table."""
        return next((table.unit for table in self.study.tables if column in table.columns), ERROR)

    @cached_property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Every difference between two encodings that the paper's figures show."""
        found = []
        for table in self.study.tables:
            for column in table.columns:
                for pair in combinations(self.rows, 2):
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
        return {1: "found", 0: "not found", -1: "reversed"}[ahead]  # type: ignore[return-value]  # mypy sees str

    def ahead(self, column: Column, one: str, other: str, alike: float = 0.0) -> int | None:
        """1 if a row is better than another here, -1 if worse, 0 if neither; None if unknown.

        Numbers that differ by the share `alike` of the smaller one count as neither.
        """
        first, second = self.entry(column, one), self.entry(column, other)
        if min(len(first.values), len(second.values)) < 2:
            return None
        unit = self.unit(column)
        unit = replace(unit, relative=max(unit.relative, alike))
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
    return Results.read(directory)


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
