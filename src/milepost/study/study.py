"""What a study is: a paper's tables, the runs that fill them, and the paper's own figures.

A study trains every `Row` (an encoding, and how it is trained) on every `Arm` (a task with its
settings), once per seed. One such run is a cell (`milepost.study.cell`). A `Table` arranges what
the cells measured as the paper does: each `Column` is one number of an arm's models, and carries
the paper's figures with the place they were printed. A `Claim` is what the paper says of them, and
is judged from our numbers (`milepost.report.claims`). Everything here is plain data and imports no
torch, so that a report can be drawn without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from milepost.errors import UsageError
from milepost.files import read_object
from milepost.study.kinds import check_grid

if TYPE_CHECKING:
    from milepost.study.cell import Cell

DECLARATION = "study.json"

# What a finished cell's file has, and a failed one's.
RESULT = ("settings", "test_sets", "errors", "history", "seconds", "versions", "machine")
FAILURE = ("reason",)

_DECLARED = {"study": str, "scale": str, "encodings": list, "seeds": int, "cells": list}
_PLANNED = {"arm": str, "encoding": str, "seed": int, "hash": str}

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """A number as a paper prints it, with its standard deviation where it gives one."""

    mean: float
    spread: float | None = None


@dataclass(frozen=True)
class Row:
    """An encoding, and in what it or its model or training differs from the recipe.

    Attributes:
        name: of the row; an encoding's own name where nothing differs.
        encoding: from `milepost encodings`.
        options: of the encoding.
        model: settings of `milepost.model.Config`.
        training: settings of `milepost.training.settings.Settings`.
        at: by scale, the same three by their names, where they are not the same at all scales.
    """

    name: str
    encoding: str
    options: Values = field(default_factory=dict)
    model: Values = field(default_factory=dict)
    training: Values = field(default_factory=dict)
    at: Mapping[str, Mapping[str, Values]] = field(default_factory=dict)

    def given(self, what: Literal["options", "model", "training"], scale: str) -> dict[str, Any]:
        """One of the three at a scale."""
        return {**getattr(self, what), **self.at.get(scale, {}).get(what, {})}


@dataclass(frozen=True)
class Probe:
    """Something measured of a trained model beside its errors.

    Attributes:
        kind: a file of `milepost.study.probes`.
        at: its settings by scale; the same everywhere under "".
        name: under which the result has it; the kind's if empty.
    """

    kind: str
    at: Mapping[str, Values] = field(default_factory=dict)
    name: str = ""

    def settings(self, scale: str) -> dict[str, Any]:
        """Its settings at a scale."""
        return {**self.at.get("", {}), **self.at.get(scale, {})}


@dataclass(frozen=True)
class Arm:
    """One training condition: a task, and in what it differs from its recipe.

    Attributes:
        name: of the arm.
        title: what people are shown.
        task: a name from `milepost tasks`.
        settings: of the task.
        recipe: of `milepost.training.recipes`; the task's own if empty.
        model: settings of `milepost.model.Config`.
        training: settings of `milepost.training.settings.Settings`.
        at: by scale, the same three by their names.
        test_sets: which are asked; all that the task has if None.
        probes: what else is measured.
        rows: the rows that are trained here; all if None.
    """

    name: str
    title: str
    task: str
    settings: Values = field(default_factory=dict)
    recipe: str = ""
    model: Values = field(default_factory=dict)
    training: Values = field(default_factory=dict)
    at: Mapping[str, Mapping[str, Values]] = field(default_factory=dict)
    test_sets: tuple[str, ...] | None = None
    probes: tuple[Probe, ...] = ()
    rows: tuple[str, ...] | None = None

    def given(self, what: Literal["settings", "model", "training"], scale: str) -> dict[str, Any]:
        """One of the three at a scale."""
        return {**getattr(self, what), **self.at.get(scale, {}).get(what, {})}

    def trains(self, row: str) -> bool:
        """Whether a row is trained here. One that the study does not know by name always is."""
        return self.rows is None or row in self.rows


@dataclass(frozen=True)
class Unit:
    """What a table's numbers are.

    Attributes:
        name: that stands behind the table's title.
        factor: what a measured number is multiplied by.
        higher: whether more is better.
        least: the smallest difference that counts.
        relative: the same as a share of the smaller number; the larger of the two rules.
        decimals: how many are shown; None for as many as a percentage needs.
        comparable: whether the paper's numbers are of the size of ours, and may share an axis.
    """

    name: str
    factor: float = 1.0
    higher: bool = False
    least: float = 0.0
    relative: float = 0.0
    decimals: int | None = None
    comparable: bool = True


ERROR = Unit("%", 100.0, least=0.5)
ACCURACY = Unit("%", 100.0, higher=True, least=0.5)
PERPLEXITY = Unit("perplexity", relative=0.005, decimals=2, comparable=False)


@dataclass(frozen=True)
class Column:
    """One column: a number of an arm's models, with the paper's figures of it.

    Without a `probe` it is the error on `test_set` under `metric`: "token", "sequence" or "last".
    With one it is what that probe found under the key `test_set` by the name `metric`.
    """

    title: str
    arm: str
    test_set: str
    metric: str
    source: str = ""
    paper: Mapping[str, Figure] = field(default_factory=dict)
    probe: str = ""


@dataclass(frozen=True)
class Table:
    """Columns that are read together; `counted` is what the numbers are."""

    name: str
    title: str
    counted: str
    columns: tuple[Column, ...]
    unit: Unit = ERROR


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, or a question of its readers, that the measurements can answer.

    Attributes:
        text: in the paper's words or close to them.
        where: it is printed.
        columns: where to look, as "table/column"; all columns of a table as "table".
        better: rows each of which is said to be better than all of `worse`.
        worse: than these.
        no_worse: instead, to be no worse than any of them.
        within: instead, `better` rows are said to reach this number, in the table's unit.
        same: instead, the two are said to be alike: to differ by this share of the smaller number
            at most, if at all. It is what the paper's own figures of them ask for.
        why_not: why it cannot be tested here.
        question: whether it is a reader's, judged as if a paper said that it is so.
    """

    text: str
    where: str
    columns: tuple[str, ...] = ()
    better: tuple[str, ...] = ()
    worse: tuple[str, ...] = ()
    no_worse: bool = False
    within: float | None = None
    same: float = 0.0
    why_not: str = ""
    question: bool = False


@dataclass(frozen=True)
class Picture:
    """A drawing of what a probe found: one of `milepost.report.pictures`.

    Attributes:
        kind: "curve", a metric against the probe's keys, which are numbers; "positions", a list
            against another; "heat", a grid for each row; "example", one text's matrices; or
            "history", errors of test sets while training.
        title: above it.
        arm: whose models.
        probe: what was measured.
        metric: of what it found.
        x: the label of the horizontal axis.
        y: the label of the vertical axis.
        rows: which are drawn; all if there are none.
    """

    kind: Literal["curve", "positions", "heat", "example", "history"]
    title: str
    arm: str
    probe: str = ""
    metric: str = ""
    x: str = ""
    y: str = ""
    rows: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of its file."""
        return "-".join(part for part in (self.arm, self.probe, self.metric) if part)


@dataclass(frozen=True)
class Study:
    """A paper's table or figure: its rows, its arms, and the tables they fill.

    Attributes:
        name: of the study, its file's name.
        title: what people are shown.
        paper: what it repeats.
        link: to the paper.
        rows: those that are run by default; a string is an encoding as it is.
        arms: what each is trained on.
        tables: how the numbers are laid out.
        pictures: what is drawn beside the usual plots.
        claims: what the paper says.
        remarks: what a reader of the tables must know.
        seeds: how many by default.
        paper_seeds: of the paper.
        minutes: that the mini scale took on two cores, by each row's fastest seed.
        overrides: settings given by the user, for the cells of every arm that has them.
        scales: at which it can be run, with what kinds of study that have settings say of them.
    """

    name: str
    title: str
    paper: str
    link: str
    rows: tuple[str | Row, ...]
    arms: tuple[Arm, ...]
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...] = ()
    claims: tuple[Claim, ...] = ()
    remarks: tuple[str, ...] = ()
    seeds: int = 3
    paper_seeds: int = 3
    minutes: int | None = None
    overrides: Values = field(default_factory=dict)
    scales: Mapping[str, Any] = field(default_factory=lambda: dict.fromkeys(("mini", "paper")))

    needs = ""
    report = "tables"
    alone = False

    @property
    def encodings(self) -> tuple[str, ...]:
        """The names of the rows."""
        return tuple(row if isinstance(row, str) else row.name for row in self.rows)

    @property
    def declared(self) -> dict[str, Any]:
        """What study.json keeps beside the grid."""
        return {"settings": dict(self.overrides)} if self.overrides else {}

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def row(self, name: str) -> Row:
        """The row of that name, or a plain one of that encoding."""
        from milepost import encoding as registry
        from milepost.errors import unknown

        for row in self.rows:
            if isinstance(row, Row) and row.name == name:
                return row
        if name not in registry.names():
            raise unknown("encoding", name, dict.fromkeys([*self.encodings, *registry.names()]))
        return Row(name, name)

    def with_settings(self, overrides: Values) -> Study:
        """The study with other settings than its recipes have, in every arm that has them.

        Raises:
            UsageError: no arm has a setting of that name.
        """
        from milepost.errors import unknown
        from milepost.study.cell import settable

        known = {name for arm in self.arms for name in settable(arm.task)}
        for name in overrides:
            if name not in known:
                raise unknown("setting", name, known)
        return replace(self, overrides={**self.overrides, **overrides})

    def given(self, arm: Arm) -> dict[str, Any]:
        """The user's settings that an arm has."""
        from milepost.study.cell import settable

        known = settable(arm.task) if self.overrides else ()
        return {name: value for name, value in self.overrides.items() if name in known}

    @property
    def lacking(self) -> dict[str, list[str]]:
        """By the user's settings that only some arms have: the arms that are without."""
        without = {
            name: [arm.name for arm in self.arms if name not in self.given(arm)]
            for name in self.overrides
        }
        return {name: arms for name, arms in without.items() if arms}

    def cell(self, scale: str, arm: str, encoding: str, seed: int) -> Cell | None:
        """The cell there, or None where there is none any more."""
        from milepost.study.cell import Cell

        arms = {one.name: one for one in self.arms}
        if arm not in arms:
            return None
        return Cell.build(arms[arm], scale, self.row(encoding), seed, self.given(arms[arm]))

    def cells(self, scale: str, encodings: Sequence[str], seeds: int) -> list[Cell]:
        """Every run of the grid: all arms and rows of seed 0, then of seed 1, ..."""
        from milepost.study.cell import Cell

        check_grid(self, encodings, seeds)
        rows = [self.row(name) for name in dict.fromkeys(encodings)]
        return [
            Cell.build(arm, scale, row, seed, self.given(arm))
            for seed in range(seeds)
            for arm in self.arms
            for row in rows
            if arm.trains(row.name) or row.name not in self.encodings
        ]


def read_declaration(directory: Path) -> dict[str, Any]:
    """What study.json in the folder says: the study, its scale, and the cells of its grid.

    Raises:
        UsageError: there is none, or it is damaged.
    """
    path = directory / DECLARATION
    if not path.exists():
        raise UsageError(
            f"{directory} holds no study: expected {DECLARATION} in it, as `milepost study NAME "
            f"--out {directory}` writes"
        )
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
