"""The report of a `Study`: its tables, its claims, its plots and its page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from milepost.report import claims, html, pictures, plots, results, table
from milepost.report.results import Results
from milepost.report.verdicts import Judged

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def load(directory: Path) -> Results:
    """What the folder holds."""
    return results.load(directory)


def terminal(found: Results, console: Console) -> Iterable[RenderableType]:
    """The tables, the claims and the notes, to be printed one after the other."""
    return table.terminal(found, console)


def markdown(found: Results) -> str:
    """The same as Markdown."""
    return table.markdown(found)


def judged(found: Results) -> list[Judged]:
    """The paper's claims, with what became of them."""
    return claims.judged(found)


def draw(found: Results) -> dict[str, str]:
    """Every plot by its name, which begins with its kind."""
    return {
        f"{kind}-{name}": svg
        for kind, by_name in {**plots.draw(found), **pictures.draw(found)}.items()
        for name, svg in by_name.items()
    }


def page(found: Results, drawn: Mapping[str, str], more: Iterable[str] = ()) -> str:
    """The whole page, with more at its end."""
    by_kind = {
        kind: {name: svg for name, svg in drawn.items() if name.startswith(f"{kind}-")}
        for kind in html.KINDS
    }
    return html.page(found, {kind: plots for kind, plots in by_kind.items() if plots}, more)
