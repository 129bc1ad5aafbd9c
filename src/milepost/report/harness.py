"""The report of a study by lm-eval: the tables of any study, and scores with standard errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from milepost.report import grid, html, tables
from milepost.report.grid import Grid
from milepost.report.results import Results, probed
from milepost.report.verdicts import Judged
from milepost.study.harness.study import ARM, PROBE

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

TITLE = "Scores with their standard errors over questions (%)"


def load(directory: Path) -> Results:
    """What the folder holds; its table has the tasks that were given."""
    found = tables.load(directory)
    return replace(found, study=found.study.with_settings(found.given))


def scored(found: Results) -> Grid:
    """`45.31 ± 1.45`, by row and task: also groups' parts, which the tables have no column for."""
    rows = tuple(
        (
            row,
            task,
            f"{100 * one['score']:.2f}"
            + (f" ± {100 * one['error']:.2f}" if "error" in one else ""),
        )
        for row in found.rows
        for cell in found.of(ARM, row)
        for task, one in probed(cell, PROBE).items()
    )
    return Grid(TITLE, ("row", "task", "score"), rows, left=2)


def terminal(found: Results, console: Console) -> Iterable[RenderableType]:
    """The tables, claims and notes, then the scores with their errors."""
    from rich.text import Text

    yield from tables.terminal(found, console)
    yield Text(f"\n{TITLE}", style="bold")
    for row, task, score in scored(found).rows:
        yield Text(f"  {row}, {task}: {score}")


def markdown(found: Results) -> str:
    """The same as Markdown."""
    return f"{tables.markdown(found)}\n{grid.titled(TITLE, grid.markdown(scored(found)))}"


def judged(found: Results) -> list[Judged]:
    """The paper's claims, with what became of them."""
    return tables.judged(found)


def draw(found: Results) -> dict[str, str]:
    """The plots of any study."""
    return tables.draw(found)


def page(found: Results, drawn: Mapping[str, str]) -> str:
    """The page of any study, with the errors at its end."""
    return tables.page(found, drawn, [html.details(TITLE, grid.raw(scored(found).rows))])
