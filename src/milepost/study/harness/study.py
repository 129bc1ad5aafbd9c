"""What a study by lm-eval is: folders of models, given by their row's name, and tasks.

A cell is a row: it loads the folder, as `milepost eval` does, and scores it. Nothing is trained and
nothing drawn, so there is one seed; how far to trust a figure, its standard error over questions
says.

Everything here is plain data and imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.errors import UsageError, unknown
from milepost.study.study import ACCURACY, Column, Row, Study, Table, Values

if TYPE_CHECKING:
    from milepost.study.harness.cell import HarnessCell

ARM = PROBE = "lm-eval"
"""All cells are of this arm, and a result has its scores under this name."""

OPTIONS = {
    "tasks": (str, list),
    "include_path": (str,),
    "num_fewshot": (int,),
    "limit": (int,),
    "batch_size": (int,),
    "max_length": (int,),
}
"""Settings that are of `milepost eval`; every other is a row and its folder."""


@dataclass(frozen=True)
class HarnessStudy(Study):
    """A study by lm-eval; `tasks` are those of its table, in the order of its columns."""

    tasks: tuple[str, ...] = ()
    scales: Mapping[str, Any] = field(default_factory=lambda: {"paper": None})

    needs = "models and lm-eval's tasks: --settings lora=DIR tape=DIR include_path=DIR"
    report = "harness"

    @property
    def encodings(self) -> tuple[str, ...]:
        """The rows whose folders were given, the paper's first; all of the paper's before that."""
        known = tuple(row if isinstance(row, str) else row.name for row in self.rows)
        given = [name for name in self.overrides if name not in OPTIONS]
        return (*(name for name in known if name in given), *_others(given, known)) or known

    def row(self, name: str) -> Row:
        """The row of that name, which is no encoding: its folder has one."""
        if name not in self.encodings:
            raise unknown("row", name, self.encodings)
        return Row(name, "")

    def with_settings(self, overrides: Values) -> HarnessStudy:
        """The study with folders for its rows, and with other tasks if they are given."""
        given = {**self.overrides, **overrides}
        for name, value in given.items():
            types = OPTIONS.get(name, (str,))
            if not isinstance(value, types) or isinstance(value, bool) or value in ("", []):
                expected = " or ".join(one.__name__ for one in types)
                raise UsageError(
                    f"setting {name!r} must be of type {expected}, and not empty, got {value!r}: "
                    f"rows have the path of a folder, as lora=DIR, and the options are "
                    f"{', '.join(OPTIONS)}"
                )
        asked = given.get("tasks", self.tasks)
        names = asked.split(",") if isinstance(asked, str) else list(asked)
        tasks = tuple(name.strip() for name in names if name.strip())
        tables = self.tables if set(tasks) <= set(self.tasks) else (table_of(tasks),)
        return replace(self, overrides=given, tasks=tasks, tables=tables)

    def cells(  # type: ignore[override]  # cells of another kind
        self, scale: str, encodings: Sequence[str], seeds: int
    ) -> list[HarnessCell]:
        """A cell for each row."""
        if scale not in self.scales:
            raise UsageError(
                f"{self.name} has models of yours, and no mini scale: add --scale paper"
            )
        if seeds != 1:
            raise UsageError(f"seeds must be 1, as nothing is drawn, got {seeds}: leave it out")
        found = [self.cell(scale, ARM, name, 0) for name in dict.fromkeys(encodings)]
        missing = [name for name, cell in zip(encodings, found, strict=False) if cell is None]
        if missing or not found:
            raise UsageError(
                f"{self.name} scores models of yours, and nothing is downloaded: expected the "
                f"folder of each row, got none of {', '.join(missing) or 'any'}: give them by "
                f"--settings lora=DIR tape=DIR and the like, as `milepost eval` reads them, with "
                f"include_path=DIR where the tasks are"
            )
        for name in ("include_path", *encodings):
            folder = self.overrides.get(name)
            if folder is not None and not Path(folder).is_dir():
                raise UsageError(f"setting {name!r} must be a folder, got {folder}: check the path")
        return [cell for cell in found if cell is not None]

    def cell(  # type: ignore[override]  # cells of another kind
        self, scale: str, arm: str, encoding: str, seed: int
    ) -> HarnessCell | None:
        """The cell there, or None where there is no folder for it."""
        from milepost.study.harness.cell import HarnessCell

        row = self.row(encoding).name
        if arm != ARM or seed != 0 or row not in self.overrides:
            return None
        options = {name: self.overrides[name] for name in OPTIONS if name in self.overrides}
        return HarnessCell(row, self.overrides[row], {**options, "tasks": list(self.tasks)})


def _others(given: Sequence[str], known: Sequence[str]) -> list[str]:
    return [name for name in given if name not in known]


def table_of(tasks: Sequence[str]) -> Table:
    """A column for each task, without figures of a paper."""
    columns = tuple(Column(task, ARM, task, "score", probe=PROBE) for task in tasks)
    return Table(ARM, "lm-eval", "score of each task", columns, ACCURACY)
