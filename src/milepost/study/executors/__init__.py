"""Where a study's cells are run: one file each, local processes or a cluster's jobs.

What is to be run, in which order, and what became of it is the same everywhere
(`milepost.study.run`). An executor begins cells and says how far they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from milepost.study.progress import Running
from milepost.study.work import Work


class Executor(Protocol):
    """Runs cells, each alone, whose results go to one folder."""

    @property
    def detached(self) -> bool:
        """Whether the command leaves once it has begun what it can."""

    def places(self, cells: int) -> int:
        """How many of so many cells it runs at once."""

    def begin(self, directory: Path, cells: Sequence[Work]) -> list[Running]:
        """Get ready for these cells; those among them that run already."""

    def start(self, cells: Sequence[Work]) -> list[Running]:
        """Begin these."""

    def wait(self, running: Sequence[Running]) -> None:
        """Return after a moment, or as soon as there is news of one of these."""

    def leave(self, running: Sequence[Running]) -> None:
        """The command ends while these run: stop them, or let them go on."""

    def end(self) -> None:
        """All cells are done: tidy up."""
