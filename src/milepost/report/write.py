"""Everything a study's folder can show: the table on the terminal, the rest beside the results.

table.md      the tables as Markdown
plots/*.svg   each plot
report.html   the page, with all of them
"""

from __future__ import annotations

from pathlib import Path

from milepost.files import write_text
from milepost.report import html, plots, results, table

LOG_WIDTH = 100


def show_and_write(directory: Path) -> None:
    """Print the tables, then write the files and print the page's path.

    The tables come first, so that they are there even if a plot cannot be drawn.
    """
    from rich.console import Console

    found = results.load(directory)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=LOG_WIDTH)
    for renderable in table.terminal(found, console):
        console.print(renderable)
    write_text(directory / "table.md", table.markdown(found))
    drawn = plots.draw(found)
    for kind, by_name in drawn.items():
        for name, svg in by_name.items():
            write_text(directory / "plots" / f"{kind}-{name}.svg", svg)
    write_text(directory / "report.html", html.page(found, drawn))
    console.print()
    console.print(f"report: {directory / 'report.html'}", soft_wrap=True, markup=False)
