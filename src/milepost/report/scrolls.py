"""The report of a study of SCROLLS: the tables of any study, and answers side by side.

Of each task the first questions that were asked, and what the rows wrote, in seed 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.report import grid, html, tables
from milepost.report.results import Results
from milepost.report.verdicts import Judged

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

SHOWN = 2
"""So many questions of a task are shown."""

MOST = 300
"""Longer answers and questions are cut."""


@dataclass(frozen=True)
class Asked:
    """A question and who answered what."""

    title: str
    id: str
    question: str
    right: tuple[str, ...]
    answers: Mapping[str, tuple[str, float]]
    """By row: the answer and its score."""


def asked(found: Results) -> Iterator[Asked]:
    """The questions that are shown."""
    for arm in found.study.arms:
        first = {
            row: cell.result["answers"]
            for row in found.rows
            for cell in found.of(arm.name, row)
            if cell.seed == 0 and cell.result is not None
        }
        questions: list[dict[str, Any]] = next(iter(first.values()), [])
        for place, one in enumerate(questions[:SHOWN]):
            answers = {
                row: (cut(kept[place]["answer"]), float(kept[place]["score"]))
                for row, kept in first.items()
                if place < len(kept) and kept[place]["id"] == one["id"]
            }
            right = tuple(map(cut, one["right"]))
            yield Asked(arm.title, one["id"], cut(one["input"]), right, answers)


def cut(text: str) -> str:
    """On one line, and no longer than `MOST`."""
    line = " ".join(text.split())
    return line if len(line) <= MOST else f"{line[:MOST].rstrip()}..."


def load(directory: Path) -> Results:
    """What the folder holds."""
    return tables.load(directory)


def terminal(found: Results, console: Console) -> Iterable[RenderableType]:
    """The tables, claims and notes, then the answers."""
    from rich.text import Text

    yield from tables.terminal(found, console)
    for one in asked(found):
        yield Text(f"\n{heading(one)}", style="bold")
        for name, answer in lines(one):
            yield Text(f"  {name}: {answer}")


def heading(one: Asked) -> str:
    """`Qasper, question 42`."""
    return f"{one.title}, question {one.id}"


def lines(one: Asked) -> list[tuple[str, str]]:
    """What was asked, what is right, and each row's answer with its score in per cent."""
    said = [(row, f"{text} ({100 * score:.0f} %)") for row, (text, score) in one.answers.items()]
    return [("asked", one.question), *(("right", text) for text in one.right), *said]


def markdown(found: Results) -> str:
    """The same as Markdown."""
    blocks = [tables.markdown(found)]
    for one in asked(found):
        said = grid.bullets(f"{name}: {text}" for name, text in lines(one))
        blocks.append(grid.titled(heading(one), f"{said}\n"))
    return "\n".join(blocks)


def judged(found: Results) -> list[Judged]:
    """The paper's claims, with what became of them."""
    return tables.judged(found)


def draw(found: Results) -> dict[str, str]:
    """The plots of any study."""
    return tables.draw(found)


def page(found: Results, drawn: Mapping[str, str]) -> str:
    """The page of any study, with the answers at its end."""
    blocks = [html.details(heading(one), grid.raw(lines(one))) for one in asked(found)]
    return tables.page(found, drawn, ["<h2>Answers</h2>", *blocks] if blocks else [])
