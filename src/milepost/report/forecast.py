"""What a study will take, as people read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from milepost.wording import counted

if TYPE_CHECKING:
    from rich.table import Table

    from milepost.study.forecast import Forecast
    from milepost.study.plan import Plan


def table(found: Forecast) -> Table:
    """A line for each arm and row."""
    from rich import box
    from rich.table import Table

    lines = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("arm", "row"):
        lines.add_column(name, no_wrap=True)
    for name in ("runs", "parameters", "memory", "each", "all"):
        lines.add_column(name, justify="right", no_wrap=True)
    for entry in found.entries:
        each, count = entry.seconds, len(entry.cells)
        lines.add_row(
            entry.arm,
            entry.row,
            str(count),
            "?" if entry.parameters is None else f"{entry.parameters:,}",
            "?" if entry.memory is None else size(entry.memory),
            time(each),
            time(None if each is None else each * count),
        )
    return lines


def summary(plan: Plan, found: Forecast, total: int) -> Iterable[str]:
    """What the table comes to, and what it does not know."""
    todo, failed, taken = len(plan.todo), len(plan.failed), len(plan.elsewhere)
    finished = total - todo - failed - taken
    said = [f"{todo} of {counted(total, 'run')} to do", f"{finished} finished"]
    said += [f"{taken} to be taken from folders beside"] if taken else []
    said += [f"{failed} failed before and not tried again without --retry"] if failed else []
    yield ", ".join(said) + "."
    if not todo:
        return
    trains = all(entry.trains for entry in found.entries)
    given = all(one.speed is not None and one.speed.how.startswith("at ") for one in found.entries)
    place = "one machine" if given else "one GPU" if found.device == "cuda" else "this machine"
    if found.seconds is None:
        remedy = "; give --tokens-per-second, as `milepost train` shows it there"
        yield f"Time: not known{remedy * trains}."
    else:
        yield (
            f"Time: {time(found.seconds)} of {place} run by run, "
            f"{time(found.until_done)} with {found.places} at once. Left out: what runs lose to "
            "each other, and a cluster's queue."
        )
    known = Counter("not known" if e.speed is None else e.speed.how for e in found.entries)
    ways = "; ".join(f"{how} ({count})" for how, count in known.items())
    yield f"Speed of an arm and row, and of how many so: {ways}."
    if any(how.startswith("measured") for how in known):
        each = counted(found.threads or 0, "thread")
        threads = "" if found.device == "cuda" else f", with {each} for a run"
        yield (
            f"Measured one at a time on this {found.device}{threads}, a few steps each, while "
            f"{found.load:.1f} others were at work; from fewer sequences or layers the whole is "
            "worked out, more roughly."
        )
    if not trains:
        return
    yield (
        "Memory of a run: parameters, gradients, Adam's moments and, where measured, what a "
        "training step keeps for its backward pass. Add what PyTorch itself takes."
    )
    yield (
        f"Disk: {size(found.checkpoints)} of checkpoints while "
        f"{counted(found.places, 'runs', 'run')}, twice that as they are replaced, and some kB for "
        "each result."
    )


def time(seconds: float | None) -> str:
    """In the unit that fits; a question mark where it is not known."""
    if seconds is None:
        return "?"
    if seconds < 90:
        return f"{seconds:.2g} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 100 else f"{hours:,.0f} h"


def size(count: float) -> str:
    """Bytes in the unit that fits."""
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count / 1e3:.0f} kB"
