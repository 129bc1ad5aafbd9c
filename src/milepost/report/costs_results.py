"""A study of costs, read back: what was counted, and times as multiples of RoPE's."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from milepost.report.folder import Folder
from milepost.study.costs.study import BASE, MEASURED, CostStudy


@dataclass(frozen=True)
class Spread:
    """A ratio's median and quartiles."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Found(Folder):
    """The folder of a study of costs."""

    reads = CostStudy
    measured = MEASURED

    study: CostStudy

    def of(self, row: str) -> list[dict[str, Any]]:
        """The results of a row, one for each seed that finished."""
        return [*self.by_seed(row).values()]

    def counted(self, row: str) -> dict[str, Any] | None:
        """What was counted of a row; the same in each seed."""
        results = self.of(row)
        return dict(results[0]["counted"]) if results else None

    def time(self, row: str, part: str) -> Spread | None:
        """A part's time as a multiple of RoPE's."""
        ratios = [one for result in self.of(row) for one in result["measured"][part]["ratios"]]
        if not ratios:
            return None
        if len(ratios) == 1:
            return Spread(ratios[0], ratios[0], ratios[0])
        low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return Spread(median, low, high)


def flops(counted: Mapping[str, Any]) -> int:
    """Two for each multiply-accumulate, and the elementwise operations."""
    return int(2 * counted["macs"] + counted["elementwise"])


def counted_ratio(found: Found, row: str, measure: str) -> float | None:
    """A count as a multiple of RoPE's: "parameters", "macs" or "flops"."""
    ours, base = found.counted(row), found.counted(BASE)
    if ours is None or base is None:
        return None
    if measure == "flops":
        return flops(ours) / flops(base)
    return float(ours[measure] / base[measure])
