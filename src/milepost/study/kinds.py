"""What every kind of study has in common: what the commands, the runner and the reports ask of it.

There are grids of training runs (`milepost.study.study`), extensions of a trained model
(`extension`), costs (`costs`), and two that read what is on this machine: `scrolls`, `harness`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from milepost.errors import UsageError

if TYPE_CHECKING:
    from milepost.study.work import Work


class AnyStudy(Protocol):
    """A study, of whatever kind."""

    @property
    def name(self) -> str:
        """Its file's name."""

    @property
    def title(self) -> str:
        """What people are shown."""

    @property
    def paper(self) -> str:
        """What it repeats."""

    @property
    def link(self) -> str:
        """To the paper."""

    @property
    def seeds(self) -> int:
        """How many by default."""

    @property
    def minutes(self) -> int | None:
        """That the mini scale took on two cores, by each row's fastest seed."""

    @property
    def encodings(self) -> tuple[str, ...]:
        """The names of its rows."""

    @property
    def scales(self) -> Iterable[str]:
        """The sizes at which it can be run."""

    @property
    def needs(self) -> str:
        """What has to be given before it can run; "" if nothing."""

    @property
    def report(self) -> str:
        """The module of `milepost.report` that shows it."""

    @property
    def alone(self) -> bool:
        """Whether its cells must run one at a time."""

    @property
    def declared(self) -> dict[str, Any]:
        """What study.json keeps beside the grid."""

    def with_settings(self, overrides: Mapping[str, Any]) -> Self:
        """The study with other settings."""

    def cells(self, scale: str, encodings: Sequence[str], seeds: int) -> Sequence[Work]:
        """Every run of the grid."""

    def cell(self, scale: str, arm: str, encoding: str, seed: int) -> Work | None:
        """The cell there, or None where there is none any more."""


def check_grid(study: AnyStudy, encodings: Sequence[str], seeds: int) -> None:
    """There is something to run, or a `UsageError`."""
    if seeds < 1:
        raise UsageError(f"seeds must be at least 1, got {seeds}: three give a spread")
    if not encodings:
        raise UsageError(
            f"encodings is empty: name at least one row, as in --encodings "
            f"{','.join(study.encodings[:2])}"
        )
