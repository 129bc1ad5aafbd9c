"""Where a study stands: what is done, what runs, and how long the rest will take."""

from __future__ import annotations

import heapq
import statistics
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from milepost.study.work import Report, Work


@dataclass
class Running(ABC):
    """A cell that an executor has begun, and what it last said (`milepost.study.executors`)."""

    cell: Work
    began: float
    report: Report = field(default_factory=lambda: Report(0.0, "starting"), kw_only=True)

    @abstractmethod
    def listen(self) -> None:
        """Hear what it says now."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether it runs no more."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what it held, after its end."""

    @abstractmethod
    def death(self) -> str | None:
        """Why it ended, if it left neither result nor reason; None if it was stopped."""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def worked(self) -> float:
        """The share of the cell that this process has done."""
        return self.report.share - self.report.resumed_at

    @property
    def pace(self) -> float:
        """Seconds for each unit of cost."""
        return self.seconds / (self.worked * self.cell.cost)


@dataclass
class Progress:
    """Where a study stands."""

    total: int
    jobs: int
    skipped: int = 0
    finished: int = 0
    failed: list[Work] = field(default_factory=list)
    """Those that failed before, and are not tried again, among them."""
    stopped: list[Work] = field(default_factory=list)
    """Those that somebody else stopped: they can go on, and have not failed."""
    running: list[Running] = field(default_factory=list)
    queued: deque[Work] = field(default_factory=deque)
    paces: list[float] = field(default_factory=list)
    """Seconds for each unit of a finished cell's cost."""

    @property
    def done(self) -> int:
        return self.skipped + self.finished + len(self.failed)

    @property
    def share(self) -> float:
        """The share of the study's cells that is done, running ones counted in part."""
        partly = sum(running.report.share for running in self.running)
        return (self.done + partly) / self.total if self.total else 1.0

    @property
    def seconds_left(self) -> float | None:
        """By the pace of cells that are finished or well under way; None before there are any."""
        paces = self.paces + [one.pace for one in self.running if one.worked > 0.1]
        if not paces:
            return None
        pace = statistics.fmean(paces)
        busy = [pace * run.cell.cost * (1 - run.report.share) for run in self.running]
        return makespan(busy, (pace * cell.cost for cell in self.queued), self.jobs)


def makespan(busy: Sequence[float], queued: Iterable[float], jobs: int) -> float:
    """The seconds until all is done, if `jobs` workers take what is queued in order."""
    free_at = [*busy, *([0.0] * (jobs - len(busy)))]
    heapq.heapify(free_at)
    for seconds in queued:
        heapq.heappush(free_at, heapq.heappop(free_at) + seconds)
    return max(free_at, default=0.0)
