"""What a person sees while runs are under way: live lines on a terminal, plain ones in a log.

Everything goes to standard error; standard output is for results.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from milepost.wording import counted

if TYPE_CHECKING:
    from milepost.study.progress import Progress as StudyProgress
    from milepost.training.session import Progress as TrainingProgress

LOG_SECONDS = 30.0


def duration(seconds: float | None) -> str:
    """`4:05`, or `1:02:30`; a question mark where it is not known yet."""
    if seconds is None or seconds != seconds or seconds == float("inf"):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Lines:
    """A rich progress display on a terminal; elsewhere nothing is drawn and `log` speaks."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        self.console = Console(stderr=True, highlight=False)
        self.live = self.console.is_terminal
        self.began = self.logged = time.monotonic()
        self.display = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            TextColumn("{task.fields[about]}", markup=False),
            console=self.console,
            disable=not self.live,
            transient=True,
        )

    def __enter__(self) -> Self:
        self.display.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.display.stop()

    def log(self, line: str) -> None:
        """A line that stays: above the live ones, or in the log with the time since the start."""
        if self.live:
            self.display.console.print(line, markup=False)
        else:
            stamp = duration(time.monotonic() - self.began)
            print(f"[{stamp}] {line}", file=sys.stderr, flush=True)
        self.logged = time.monotonic()

    def due(self) -> bool:
        """Whether a log, which no live line follows, should hear again."""
        return not self.live and time.monotonic() - self.logged >= LOG_SECONDS


class TrainingLine(Lines):
    """Progress of one run: steps, loss, tokens a second, time left."""

    def __init__(self) -> None:
        super().__init__()
        self.task = self.display.add_task("training", about="", total=None)

    def __call__(self, progress: TrainingProgress) -> None:
        """Called after every step."""
        about = (
            f"step {progress.step} of {progress.steps}, loss {progress.loss:.4f}, "
            f"{progress.tokens_per_second:,.0f} tokens/s, {duration(progress.seconds_left)} left"
            + (f", {progress.skipped} skipped" if progress.skipped else "")
        )
        self.display.update(self.task, completed=progress.step, total=progress.steps, about=about)
        if self.due() or (not self.live and progress.step == progress.steps):
            self.log(about)


class CountLine(Lines):
    """Progress of so many like things, such as answers: how many there are, and the time left."""

    def __init__(self, title: str, noun: str) -> None:
        super().__init__()
        self.noun = noun
        self.task = self.display.add_task(title, about="", total=None)

    def __call__(self, done: int, total: int) -> None:
        """Called after each."""
        left = (time.monotonic() - self.began) / done * (total - done)
        about = f"{done} of {counted(total, self.noun)}, {duration(left)} left"
        self.display.update(self.task, completed=done, total=total, about=about)
        if self.due():
            self.log(about)


class StudyLines(Lines):
    """Progress of a study: an overall line with the time left, and one for each running cell."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.title = title
        self.overall = self.display.add_task(title, about="", total=1.0)
        self.rows: dict[str, Any] = {}

    def __call__(self, progress: StudyProgress, news: str | None) -> None:
        """Called several times a second, with a line of news now and then."""
        about = (
            f"{progress.done} of {counted(progress.total, 'cell')}, "
            + (f"{len(progress.failed)} failed, " if progress.failed else "")
            + f"{duration(progress.seconds_left)} left"
        )
        self.display.update(self.overall, completed=progress.share, about=about)
        running = {one.cell.hash: one for one in progress.running}
        for gone in self.rows.keys() - running.keys():
            self.display.remove_task(self.rows.pop(gone))
        for name, one in running.items():
            if name not in self.rows:
                self.rows[name] = self.display.add_task(one.cell.label, about="", total=1.0)
            self.display.update(self.rows[name], completed=one.report.share, about=one.report.doing)
        if news is not None:
            self.log(news if self.live else f"{news} ({about})")
        elif self.due():
            self.log(about)
