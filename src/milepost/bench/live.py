"""The progress line of a benchmark: the step under way, and the time left."""

from milepost.bench.cpu import Progress
from milepost.report.live import Lines, duration


class BenchLine(Lines):
    """One line with a bar over all steps, weighed by how long each is expected to take."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.task = self.display.add_task(title, about="", total=1.0)

    def __call__(self, progress: Progress, news: str | None) -> None:
        """Called before each step, and with a line of news after it."""
        about = (
            f"{progress.done} of {progress.total} steps, "
            f"{duration(progress.seconds_left)} left, {progress.doing}"
        )
        self.display.update(self.task, completed=progress.share, about=about)
        if news is not None:
            self.log(news)
        elif self.due():
            self.log(about)


class CompileLine(Lines):
    """One line with a bar over the calls whose kernels are compiled."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.task = self.display.add_task(title, about="", total=1.0)

    def __call__(self, done: int, total: int, label: str) -> None:
        """Called after each call, with how many of a target's are done."""
        about = f"{done} of {total}, {label}"
        self.display.update(self.task, completed=done / total, about=about)
        if self.due():
            self.log(about)
