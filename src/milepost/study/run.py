"""Run a study: whatever its folder lacks, wherever an executor runs it.

A cell that fails, or is killed, fails alone. When the study is run again, what is finished is
skipped, what failed is shown and tried again only if that is asked for, and what was stopped goes
on from its checkpoint.

Cells run seed by seed, and the longest first within a seed: after a third of the time each entry
of the table has its first seed, and a study that is cut short is a whole table with fewer seeds.
A cell that needs another one's outcome waits until that is finished, and fails with it.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from milepost import __version__
from milepost.errors import UsageError
from milepost.files import read_json, write_json
from milepost.study import work
from milepost.study.cell import Cell
from milepost.study.executors import Executor
from milepost.study.executors.local import Local
from milepost.study.kinds import AnyStudy
from milepost.study.plan import grid_of, last_line, plan
from milepost.study.progress import Progress, Running
from milepost.study.study import DECLARATION, read_declaration
from milepost.study.work import Work
from milepost.training.rundir import locked

Watch = Callable[[Progress, str | None], None]


def run(
    study: AnyStudy,
    directory: Path,
    *,
    scale: str,
    encodings: Sequence[str] | None = None,
    seeds: int | None = None,
    retry: bool = False,
    executor: Executor | None = None,
    keep_runs: bool = False,
    watch: Watch = lambda progress, news: None,
) -> Progress:
    """Run every cell of the study that `directory` has no result of.

    Results that lie in folders beside `directory` are taken from there (`milepost.study.plan`).

    Args:
        study: what to run.
        directory: where results are, and go.
        scale: "mini" or "paper".
        encodings: the rows; the study's own if None.
        seeds: how many, from seed 0; the study's own number if None.
        retry: try what failed before once more.
        executor: where cells run; if None in processes on this machine, one at a time where the
            study says that its cells must be alone.
        keep_runs: keep the checkpoints of finished cells.
        watch: called several times a second with the state, and with a line of news when a cell
            has finished or failed.

    Raises:
        UsageError: an argument is not valid, the directory cannot be written, holds another
            study or a damaged study.json, or is in use by another run.
        KeyboardInterrupt: after Ctrl-C, when the executor has left its cells: those on this
            machine have stopped at a checkpoint.
    """
    executor = executor or Local(1 if study.alone else None)
    grid = grid_of(study, scale, encodings, seeds)
    with locked(directory):
        found = plan(grid, directory, retry=retry)
        # before hours of training, and before anything is written
        for task in dict.fromkeys(cell.task for cell in found.todo if isinstance(cell, Cell)):
            task.check()
        _declare(study, directory, scale, grid)
        progress = Progress(
            total=len(grid),
            jobs=executor.places(len(found.todo)),
            skipped=len(grid) - len(found.todo) - len(found.failed),
            failed=[cell for cell, _ in found.failed],
            queued=deque(found.todo),
        )
        for why in found.damaged:
            watch(progress, f"runs again: {why}")
        for news in found.take(directory):
            watch(progress, news)
        for cell, reason in found.failed:
            watch(progress, f"{cell.label}: failed before, and waits for --retry: {reason}")
        _work(progress, directory, executor, keep_runs, watch)
        with suppress(OSError):
            (directory / "runs").rmdir()  # if nothing is kept there
    return progress


def _work(
    progress: Progress, directory: Path, executor: Executor, keep_runs: bool, watch: Watch
) -> None:
    """All that is queued, as soon as it can begin."""
    if not progress.queued:
        return
    progress.running = executor.begin(directory, progress.queued)
    for running in progress.running:
        progress.queued.remove(running.cell)
    try:
        while progress.queued or progress.running:
            progress.running += executor.start(_ready(progress, directory, watch))
            watch(progress, None)
            if not executor.detached:
                executor.wait(progress.running)
            ended = [running for running in progress.running if running.ended]
            for running in progress.running:
                running.listen()  # after that, so that what it said before its end is heard
            for running in ended:
                progress.running.remove(running)
                news = _conclude(running, progress, directory, keep_runs)
                running.close()
                watch(progress, news)
            if executor.detached and not ended:
                return
    finally:
        executor.leave(progress.running)
    if not progress.failed and not progress.stopped:
        executor.end()


def _ready(progress: Progress, directory: Path, watch: Watch) -> list[Work]:
    """The cells that wait for no other and have a place, out of the queue and cleared of old files.

    Those that wait for one that will not come fail, or stop, with it.
    """
    unfinished = {cell.hash for cell in progress.queued}
    unfinished |= {running.cell.hash for running in progress.running}
    failed = {cell.hash for cell in progress.failed}
    stopped = {cell.hash for cell in progress.stopped}
    places = progress.jobs - len(progress.running)
    ready: list[Work] = []
    for cell in list(progress.queued):
        needed = None if cell.needs is None else cell.needs.hash
        if needed in unfinished:
            continue
        if needed in failed or needed in stopped:
            assert cell.needs is not None
            progress.queued.remove(cell)
            (progress.failed if needed in failed else progress.stopped).append(cell)
            if needed in failed:
                reason = f"it needs {cell.needs.label}, which failed"
                work.write_failure(cell, directory, reason)
                watch(progress, f"{cell.label}: failed, {reason}")
        elif len(ready) < places:
            progress.queued.remove(cell)
            ready.append(cell)
            for file in (work.failure_file, work.result_file):
                file(cell, directory).unlink(missing_ok=True)  # the result is a damaged one
    return ready


def _conclude(running: Running, progress: Progress, directory: Path, keep_runs: bool) -> str:
    """Count a cell that has ended; a line of news about it."""
    cell = running.cell
    if work.result_file(cell, directory).exists():
        progress.finished += 1
        progress.paces.append(running.seconds / (cell.cost * (1 - running.report.resumed_at)))
        work.failure_file(cell, directory).unlink(missing_ok=True)
        if not keep_runs:
            shutil.rmtree(work.run_folder(cell, directory), ignore_errors=True)
            work.log_file(cell, directory).unlink(missing_ok=True)
        return f"{cell.label}: finished in {running.seconds:.0f} s"
    if not work.failure_file(cell, directory).exists():
        died = running.death()
        if died is None:
            progress.stopped.append(cell)
            return f"{cell.label}: stopped; the same command goes on with it"
        work.write_failure(cell, directory, died)
    progress.failed.append(cell)
    reason = last_line(read_json(work.failure_file(cell, directory))["reason"])
    return f"{cell.label}: failed, {reason}"


def _declare(study: AnyStudy, directory: Path, scale: str, grid: Sequence[Work]) -> None:
    """Write study.json: the grid, widened by what an earlier run in the folder declared.

    A cell whose recipe has changed since is another cell: its result is left out, as a stray.
    """
    path = directory / DECLARATION
    found = {(cell.arm, cell.encoding, cell.seed): cell.hash for cell in grid}
    if path.exists():
        before = read_declaration(directory)
        if (before["study"], before["scale"]) != (study.name, scale):
            raise UsageError(
                f"{directory} holds {before['study']} at {before['scale']} scale, not {study.name} "
                f"at {scale} scale: choose another folder with --out"
            )
        for cell in before["cells"]:
            place = cell["arm"], cell["encoding"], cell["seed"]
            if place not in found and _hash_today(study, scale, *place) == cell["hash"]:
                found[place] = cell["hash"]
    encodings = dict.fromkeys([*study.encodings, *(encoding for _, encoding, _ in found)])
    present = {encoding for _, encoding, _ in found}
    write_json(
        path,
        {
            "study": study.name,
            "scale": scale,
            "encodings": [encoding for encoding in encodings if encoding in present],
            "seeds": 1 + max(seed for _, _, seed in found),
            "milepost": __version__,
            **study.declared,
            "cells": [
                {"arm": arm, "encoding": encoding, "seed": seed, "hash": hash_}
                for (arm, encoding, seed), hash_ in found.items()
            ],
        },
    )


def _hash_today(study: AnyStudy, scale: str, arm: str, encoding: str, seed: int) -> str | None:
    """The hash of the cell there, or None where there can be none any more."""
    try:
        cell = study.cell(scale, arm, encoding, seed)
    except UsageError:
        return None
    return None if cell is None else cell.hash
