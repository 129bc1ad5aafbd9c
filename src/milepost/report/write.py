"""Everything a study's folder can show: the table on the terminal, the rest beside the results.

table.md      the tables as Markdown
plots/*.svg   each plot
report.html   the page, with all of them

How each of these looks is for the study's kind to say: a module of this package (`Kind`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from milepost import studies
from milepost.files import write_text
from milepost.report.plots import plain
from milepost.study.study import read_declaration

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LOG_WIDTH = 100


class Kind(Protocol):
    """What the report of a kind of study has, as functions of a module."""

    def load(self, directory: Path) -> Any:
        """What the folder holds, for the others."""

    def terminal(self, found: Any, console: Console) -> Iterable[RenderableType]:
        """Tables, claims and notes."""

    def markdown(self, found: Any) -> str:
        """The same."""

    def judged(self, found: Any) -> Sequence[Any]:
        """The claims, each with `claim`, `verdict` and `why`."""

    def draw(self, found: Any) -> dict[str, str]:
        """SVG by name."""

    def page(self, found: Any, drawn: Mapping[str, str]) -> str:
        """The whole page."""


def kind_of(directory: Path) -> Kind:
    """How the folder's study is shown."""
    study = studies.load(read_declaration(directory)["study"])
    return cast(Kind, import_module(f"milepost.report.{study.report}"))


def show_and_write(directory: Path) -> None:
    """Print the tables, then write the files and print the page's path.

    The tables come first, so that they are there even if a plot cannot be drawn.
    """
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=LOG_WIDTH)
    kind = kind_of(directory)
    found = kind.load(directory)
    for renderable in kind.terminal(found, console):
        console.print(renderable)
    write_text(directory / "table.md", kind.markdown(found))
    drawn = kind.draw(found)
    for name, svg in drawn.items():
        write_text(directory / "plots" / f"{name}.svg", plain(svg))
    write_text(directory / "report.html", kind.page(found, drawn))
    console.print()
    console.print(f"report: {directory / 'report.html'}", soft_wrap=True, markup=False)
