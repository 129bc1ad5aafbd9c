"""The studies there are, as `milepost study --list` shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from milepost import studies
from milepost.study.scrolls.study import ScrollsStudy
from milepost.study.study import Study
from milepost.wording import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from milepost.study.kinds import AnyStudy


def lines() -> Iterator[RenderableType]:
    """Two lines for each study; no recipe is built, so that they are there at once."""
    from rich.padding import Padding
    from rich.text import Text

    known = [studies.load(name) for name in studies.names()]
    width = max(len(study.name) for study in known)
    for study in known:
        yield Text.assemble((f"{study.name:{width}}", "bold"), f"  {study.title}")
        below = Text(about(study), style="dim")
        if study.needs:
            below.append(f"\nneeds {study.needs}")
        yield Padding(below, (0, 0, 0, 2))
    if any(study.minutes is not None for study in known):
        yield Text("\nMinutes are those of the mini scale on two cores.", style="dim")


def about(study: AnyStudy) -> str:
    """`Zhu et al. (2025), Table 8; 21 runs, ~5 min`."""
    told = f"{cited(study.paper)}; {counted(runs(study), 'run')}"
    if study.minutes is not None:
        told += f", ~{study.minutes} min"
    return told if "mini" in study.scales else f"{told}, at {', '.join(study.scales)} scale alone"


def runs(study: AnyStudy) -> int:
    """How many there are; an arm may train only some of the rows."""
    rows = len(study.encodings)
    if isinstance(study, ScrollsStudy):
        rows *= 1 + len(study.arms)  # each row is trained once before the tasks
    elif isinstance(study, Study) and study.arms:
        rows = sum(arm.trains(row) for arm in study.arms for row in study.encodings)
    return rows * study.seeds


def cited(paper: str) -> str:
    """A paper without its title: `Zhu et al. (2025), Table 8`."""
    return re.sub(r", [^,;()]+ (\(\d{4}\))", r" \1", paper)
