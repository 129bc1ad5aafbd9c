"""A study's folder, read back: the grid that it declares, and what became of each cell."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar, Self

from milepost import studies
from milepost.errors import UsageError
from milepost.files import read_object
from milepost.study.kinds import AnyStudy
from milepost.study.study import FAILURE, read_declaration
from milepost.wording import counted


@dataclass(frozen=True)
class Cell:
    """One run of the grid: its result, or why there is none."""

    arm: str
    encoding: str
    seed: int
    hash: str
    result: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None


@dataclass(frozen=True)
class Folder:
    """What a folder holds; the kinds of studies have subclasses that know what was measured.

    Attributes:
        study: that it is of.
        scale: at which.
        rows: by their names.
        seeds: how many.
        cells: of the grid.
        strays: how many results of other settings lie there.
        given: the settings that were given by the user.
    """

    reads: ClassVar[type]
    """The studies that can be read so."""
    measured: ClassVar[Iterable[str]]
    """What a result must have."""

    study: AnyStudy
    scale: str
    rows: tuple[str, ...]
    seeds: int
    cells: tuple[Cell, ...]
    strays: int
    given: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read the folder as `milepost study` left it, finished or not.

        Raises:
            UsageError: it holds no study or one of another kind, or a file of it is damaged.
        """
        declared = read_declaration(directory)
        study = studies.load(declared["study"])
        if not isinstance(study, cls.reads):
            raise UsageError(
                f"{directory} holds {study.name}, which is no {cls.reads.__name__}: read it with "
                f"milepost.report.{study.report}.load"
            )
        cells = tuple(_cell(directory, cell, cls.measured) for cell in declared["cells"])
        known = {cell.hash for cell in cells}
        return cls(
            study=study,
            scale=declared["scale"],
            rows=tuple(declared["encodings"]),
            seeds=declared["seeds"],
            cells=cells,
            strays=sum(path.stem not in known for path in (directory / "cells").glob("*.json")),
            given=declared.get("settings", {}),
        )

    @property
    def finished(self) -> list[tuple[Cell, dict[str, Any]]]:
        """The cells that have a result, with it."""
        return [(cell, cell.result) for cell in self.cells if cell.result is not None]

    @property
    def failed(self) -> list[tuple[Cell, str]]:
        """The cells that failed, with the reason."""
        return [
            (cell, str(cell.failure["reason"])) for cell in self.cells if cell.failure is not None
        ]

    def by_seed(self, row: str) -> dict[int, dict[str, Any]]:
        """The results of a row by their seed, where there is but one arm."""
        return {cell.seed: result for cell, result in self.finished if cell.encoding == row}

    def status(self, row: str) -> str:
        """Why a row has no number, where there is but one arm."""
        return "failed" if any(cell.encoding == row for cell, _ in self.failed) else "not run"

    @property
    def minutes(self) -> float:
        """That all cells took together."""
        return float(sum(result["seconds"] for _, result in self.finished)) / 60

    @property
    def machines(self) -> Counter[str]:
        """The versions and machines that made the results, and how many each."""
        return Counter(
            ", ".join(
                f"{name} {value}"
                for name, value in {**result["versions"], **result["machine"]}.items()
                if value
            )
            for _, result in self.finished
        )

    @property
    def warnings(self) -> list[str]:
        """What is missing, or lies there and is not shown; a sentence each."""
        lines = []
        if self.failed:
            lines.append(
                f"{len(self.failed)} of {counted(len(self.cells), 'cell')} failed; report.html has "
                f"the reasons. Once they are mended, `{self.command} --retry` runs them again, "
                "with the same --out if there was one."
            )
        if self.strays:
            results = counted(
                self.strays,
                "result of other settings lies in the folder and is left out",
                "results of other settings lie in the folder and are left out",
            )
            lines.append(f"{results}.")
        return lines

    @property
    def named_rows(self) -> tuple[str, ...]:
        """The rows as a command line names them."""
        return self.rows

    @property
    def command(self) -> str:
        """That makes these results."""
        study = self.study
        words = ["milepost study", study.name, "--scale", self.scale]
        if set(self.rows) != set(study.encodings):
            words += ["--encodings", ",".join(self.named_rows)]
        if self.seeds != study.seeds:
            words += ["--seeds", str(self.seeds)]
        if self.given:
            words += ["--settings", *settings_as_given(self.given)]
        return " ".join(words)


def _cell(directory: Path, declared: Mapping[str, Any], names: Iterable[str]) -> Cell:
    result = _read(directory / "cells" / f"{declared['hash']}.json", names)
    failed = directory / "failed" / f"{declared['hash']}.json"
    return Cell(
        **{key: declared[key] for key in ("arm", "encoding", "seed", "hash")},
        result=result,
        failure=_read(failed, FAILURE) if result is None else None,
    )


def _read(path: Path, names: Iterable[str]) -> dict[str, Any] | None:
    """The JSON object in a file, or None where there is no file."""
    return read_object(path, names) if path.exists() else None


def settings_as_given(given: Mapping[str, Any]) -> list[str]:
    """NAME=VALUE of each, as a shell reads them."""
    plain = {
        name: value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        for name, value in given.items()
    }
    return [quote(f"{name}={value}") for name, value in plain.items()]
