"""What is to be done of a study: what its folder lacks, and no folder beside it has.

A cell's file is named after everything that decides its numbers, so a result of that name is the
cell's own, whichever study made it: one that lies in a folder beside this one is taken from there.
Not so what is part of a whole that stays in its folder, a row of a base or the base itself, and
what is of a machine and a day, as costs are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from milepost.errors import UsageError
from milepost.files import read_object, write_text
from milepost.study import work
from milepost.study.costs.cell import CostCell
from milepost.study.kinds import AnyStudy
from milepost.study.study import FAILURE
from milepost.study.work import Work
from milepost.wording import counted


@dataclass(frozen=True)
class Plan:
    """What is to be done.

    Attributes:
        todo: those that are to run, in order.
        failed: those that failed before and are not tried again, with the reason's last line.
        damaged: what is wrong with results that cannot be read; their cells run again.
        elsewhere: results in folders beside this one, by their cells' hashes.
    """

    todo: Sequence[Work]
    failed: Sequence[tuple[Work, str]]
    damaged: Sequence[str]
    elsewhere: Mapping[str, Path]

    def take(self, directory: Path) -> list[str]:
        """Copy the results that lie elsewhere; a line of news for each folder they are from."""
        taken: dict[Path, int] = {}
        for name, path in self.elsewhere.items():
            content = path.read_text(encoding="utf-8")
            write_text(directory / "cells" / path.name, content)
            (directory / "failed" / f"{name}.json").unlink(missing_ok=True)
            folder = path.parent.parent
            taken[folder] = taken.get(folder, 0) + 1
        return [f"{counted(count, 'result')} taken from {path}" for path, count in taken.items()]


def grid_of(
    study: AnyStudy, scale: str, encodings: Sequence[str] | None, seeds: int | None
) -> Sequence[Work]:
    """Every cell of the study: of its own rows, or number of seeds, where there is None."""
    return study.cells(
        scale,
        study.encodings if encodings is None else encodings,
        study.seeds if seeds is None else seeds,
    )


def plan(grid: Sequence[Work], directory: Path, *, retry: bool = False) -> Plan:
    """What is to be done.

    Args:
        grid: every cell of the study.
        directory: where results are, and go; it need not exist.
        retry: try what failed before once more.
    """
    damaged = {cell.hash: why for cell in grid if (why := work.damage(cell, directory))}
    # by hash: two places of a grid may be the same run, which is done once
    missing = {
        cell.hash: cell
        for cell in grid
        if cell.hash in damaged or not work.result_file(cell, directory).exists()
    }
    elsewhere = dict(_elsewhere(missing.values(), directory))
    failed = {
        name: (cell, reason)
        for name, cell in missing.items()
        if name not in elsewhere and not retry and (reason := _failure(cell, directory))
    }
    todo = {
        name: cell for name, cell in missing.items() if name not in elsewhere and name not in failed
    }
    wanted = {cell.needs.hash for cell in todo.values() if cell.needs is not None}
    for cell in grid:
        if cell.hash in wanted and cell.hash not in failed and not cell.ready(directory):
            todo.setdefault(cell.hash, cell)
    return Plan(
        todo=sorted(todo.values(), key=_order),
        failed=list(failed.values()),
        damaged=[why for name, why in damaged.items() if name in todo],
        elsewhere=elsewhere,
    )


def _order(cell: Work) -> tuple[int, bool, float]:
    """Seed by seed, first what others need, then the longest."""
    return cell.seed, cell.needs is not None, -cell.cost


def _failure(cell: Work, directory: Path) -> str | None:
    """The last line of why the cell failed, if it did."""
    path = work.failure_file(cell, directory)
    if not path.exists():
        return None
    try:
        return last_line(read_object(path, FAILURE)["reason"])
    except UsageError:
        return None  # nobody knows any more


def _elsewhere(missing: Iterable[Work], directory: Path) -> Iterator[tuple[str, Path]]:
    """The cells that a folder beside `directory` has a whole result of."""
    alone = [
        cell
        for cell in missing
        if cell.needs is None and cell.ready(directory) and not isinstance(cell, CostCell)
    ]
    folders = _folders_beside(directory) if alone else []
    for cell in alone:
        for folder in folders:
            path = folder / "cells" / f"{cell.hash}.json"
            with suppress(UsageError):
                if path.exists():
                    read_object(path, cell.result_names)
                    yield cell.hash, path
                    break


def _folders_beside(directory: Path) -> list[Path]:
    """The folders of results that have the same parent."""
    try:
        beside = sorted(directory.parent.iterdir())
    except OSError:
        return []
    here = directory.resolve()
    return [path for path in beside if os.path.isdir(path / "cells") and path.resolve() != here]


def last_line(text: str) -> str:
    """What a reason comes down to."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no reason given")
