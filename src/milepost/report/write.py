"""Everything a study's folder can show: the table on the terminal, the rest beside the results.

table.md      the tables as Markdown
plots/*.svg   each plot
report.html   the page, with all of them
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from milepost import studies
from milepost.files import write_text
from milepost.report import extension, html, plots, results, table
from milepost.studies.extension import Extension
from milepost.studies.study import DECLARATION, read_declaration

if TYPE_CHECKING:
    from rich.console import Console

LOG_WIDTH = 100


def show_and_write(directory: Path) -> None:
    """Print the tables, then write the files and print the page's path.

    The tables come first, so that they are there even if a plot cannot be drawn.
    """
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=LOG_WIDTH)
    if is_extension(directory):
        _extension(directory, console)
    else:
        _tables(directory, console)
    console.print()
    console.print(f"report: {directory / 'report.html'}", soft_wrap=True, markup=False)


def is_extension(directory: Path) -> bool:
    """Whether the folder holds a study of context extension; without a study it does not."""
    if not (directory / DECLARATION).exists():
        return False
    return isinstance(studies.load(read_declaration(directory)["study"]), Extension)


def _tables(directory: Path, console: Console) -> None:
    found = results.load(directory)
    for renderable in table.terminal(found, console):
        console.print(renderable)
    write_text(directory / "table.md", table.markdown(found))
    drawn = plots.draw(found)
    for kind, by_name in drawn.items():
        for name, svg in by_name.items():
            write_text(directory / "plots" / f"{kind}-{name}.svg", svg)
    write_text(directory / "report.html", html.page(found, drawn))


def _extension(directory: Path, console: Console) -> None:
    found = extension.load(directory)
    for renderable in extension.terminal(found, console):
        console.print(renderable)
    write_text(directory / "table.md", extension.markdown(found))
    drawn = extension.draw(found)
    for name, svg in drawn.items():
        write_text(directory / "plots" / f"{name}.svg", svg)
    write_text(directory / "report.html", extension.page(found, drawn))
