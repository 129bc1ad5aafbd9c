"""A study of context extension, read back: nats of a token, and passkeys that were found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from milepost.report.folder import Folder
from milepost.study.extension.study import BASE, MEASURED, Extension

if TYPE_CHECKING:
    from milepost.tasks.passkey import Score


@dataclass(frozen=True)
class Extended(Folder):
    """The folder of a study of context extension."""

    reads = Extension
    measured = MEASURED

    study: Extension

    @property
    def named_rows(self) -> tuple[str, ...]:
        """All but the base, which is there without being asked for."""
        return tuple(row for row in self.rows if row != BASE)

    def of(self, row: str) -> list[dict[str, Any]]:
        """The results of a row, one for each seed that finished."""
        return [*self.by_seed(row).values()]

    def lengths(self, kind: str) -> list[int]:
        """At which perplexity or passkeys were measured."""
        return sorted({int(length) for _, result in self.finished for length in result[kind]})

    @property
    def trained_length(self) -> int:
        """T."""
        return int(self.finished[0][1]["length"])


def nats(result: Mapping[str, Any], length: int) -> float:
    """Of a token in windows of that length."""
    return float(result["perplexity"][str(length)]["nats"])


def perplexity(nats: float) -> float:
    """e^nats, as far as a float goes."""
    return math.exp(min(nats, 700.0))


def found_keys(results: Iterable[Mapping[str, Any]], length: int) -> Score | None:
    """The passkeys found at a length, all depths and results taken together."""
    # with it comes torch, which no other report needs
    from milepost.tasks.passkey import Score

    counts = [
        (right, trials)
        for result in results
        for right, trials in result["passkey"].get(str(length), {}).values()
    ]
    if not counts:
        return None
    return Score(sum(right for right, _ in counts), sum(trials for _, trials in counts))
