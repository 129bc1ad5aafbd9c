"""The studies there are, as `milepost study --list` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost import studies
from milepost.study.study import Study

if TYPE_CHECKING:
    from rich.table import Table

    from milepost.study.kinds import AnyStudy


def table() -> Table:
    """A line for each study; no recipe is built, so that it is there at once."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    lines = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False)
    lines.add_column("study", no_wrap=True)
    lines.add_column("what")
    lines.add_column("rows x arms x seeds", justify="right")
    for name in studies.names():
        study = studies.load(name)
        what = Text(study.title)
        what.append(f"\n{study.paper}", style="dim")
        if study.needs:
            what.append(f"\nneeds {study.needs}")
        if "mini" not in study.scales:
            what.append(f"\nat {', '.join(study.scales)} scale alone", style="dim")
        lines.add_row(Text(name, style="bold"), what, grid(study))
    return lines


def grid(study: AnyStudy) -> str:
    """Rows x arms x seeds = runs; fewer where an arm trains only some of the rows."""
    rows, seeds = len(study.encodings), study.seeds
    if not isinstance(study, Study) or not study.arms:
        return f"{rows} x 1 x {seeds} = {rows * seeds}"
    trained = sum(arm.trains(row) for arm in study.arms for row in study.encodings)
    whole = trained == rows * len(study.arms)
    return f"{rows} x {len(study.arms)} x {seeds} {'=' if whole else '>'} {trained * seeds}"
