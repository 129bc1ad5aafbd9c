"""Run a study: its cells side by side, each in a process of its own.

A cell that fails, or is killed, fails alone. What is finished is skipped when the study is run
again, what failed is tried again, and what was stopped goes on from its checkpoint.

Cells run seed by seed, and the longest first within a seed: after a third of the time each entry
of the table has its first seed, and a study that is cut short is a whole table with fewer seeds.
A cell that needs another one's outcome waits until that is finished, and fails with it.
"""

from __future__ import annotations

import heapq
import multiprocessing
import os
import shutil
import signal
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from milepost import __version__
from milepost.errors import UsageError
from milepost.files import read_json, write_json
from milepost.studies import cell as cells
from milepost.studies.cell import Report, Work
from milepost.studies.extension import Extension
from milepost.studies.study import DECLARATION, Study, read_declaration
from milepost.training.device import choose
from milepost.training.rundir import locked

TICK_SECONDS = 0.25
PATIENCE_SECONDS = 30.0


@dataclass
class Running:
    """A cell's process, and what it last said."""

    cell: Work
    process: BaseProcess
    connection: Connection
    began: float
    report: Report = field(default_factory=lambda: Report(0.0, "starting"))

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


Watch = Callable[[Progress, str | None], None]


def run(
    study: Study | Extension,
    directory: Path,
    *,
    scale: str,
    encodings: Sequence[str] | None = None,
    seeds: int | None = None,
    jobs: int | None = None,
    device: str | None = None,
    keep_runs: bool = False,
    watch: Watch = lambda progress, news: None,
) -> Progress:
    """Run every cell of the study that `directory` has no result of.

    Args:
        study: what to run.
        directory: where results are, and go.
        scale: "mini" or "paper".
        encodings: the rows; the study's own if None.
        seeds: how many, from seed 0; the study's own number if None.
        jobs: how many cells at once; if None, one for each core, or one on a GPU.
        device: where; the first GPU, or else the CPU, if None.
        keep_runs: keep the checkpoints of finished cells.
        watch: called several times a second with the state, and with a line of news when a cell
            has finished or failed.

    Raises:
        UsageError: an argument is not valid, the directory cannot be written, holds another
            study or a damaged study.json, or is in use by another run.
        KeyboardInterrupt: after Ctrl-C, when every cell has stopped and left a checkpoint.
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs must be at least 1, got {jobs}: leave it out for one for each core")
    grid: Sequence[Work] = study.cells(
        scale,
        study.encodings if encodings is None else encodings,
        study.seeds if seeds is None else seeds,
    )
    on_gpu = torch.cuda.is_available() if device is None else choose(device).type == "cuda"
    with locked(directory):
        _declare(study, directory, scale, grid)
        damaged = {cell.hash: why for cell in grid if (why := cells.damage(cell, directory))}
        todo = [
            cell
            for cell in grid
            if cell.hash in damaged or not cells.result_file(cell, directory).exists()
        ]
        wanted = {cell.needs.hash for cell in todo if cell.needs is not None}
        todo += [
            cell
            for cell in grid
            if cell.hash in wanted and cell not in todo and not cell.ready(directory)
        ]
        cores = usable_cores()
        jobs = max(1, min(jobs or (1 if on_gpu else cores), len(todo)))
        progress = Progress(
            total=len(grid),
            jobs=jobs,
            skipped=len(grid) - len(todo),
            queued=deque(sorted(todo, key=_order)),
        )
        for why in damaged.values():
            watch(progress, f"runs again: {why}")
        try:
            _pool(progress, directory, max(1, cores // jobs), device, keep_runs, watch)
        finally:
            _stop(progress.running)
        with suppress(OSError):
            (directory / "runs").rmdir()  # if nothing is kept there
    return progress


def _order(cell: Work) -> tuple[int, bool, float]:
    """Seed by seed, first what others need, then the longest."""
    return cell.seed, cell.needs is not None, -cell.cost


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _pool(
    progress: Progress,
    directory: Path,
    threads: int,
    device: str | None,
    keep_runs: bool,
    watch: Watch,
) -> None:
    while progress.queued or progress.running:
        while len(progress.running) < progress.jobs and (cell := _next(progress)):
            progress.queued.remove(cell)
            if cell.needs is not None and cell.needs in progress.failed:
                progress.failed.append(cell)
                reason = f"it needs {cell.needs.label}, which failed"
                cells.write_failure(cell, directory, reason)
                watch(progress, f"{cell.label}: failed, {reason}")
            else:
                progress.running.append(_start(cell, directory, threads, device))
        wait(
            [one for run in progress.running for one in (run.process.sentinel, run.connection)],
            timeout=TICK_SECONDS,
        )
        for running in list(progress.running):
            ended = not running.process.is_alive()
            _listen(running)
            if ended:
                progress.running.remove(running)
                watch(progress, _conclude(running, progress, directory, keep_runs))
        watch(progress, None)


def _next(progress: Progress) -> Work | None:
    """The first cell in the queue that waits for no other."""
    unfinished = {cell.hash for cell in progress.queued}
    unfinished |= {running.cell.hash for running in progress.running}
    return next(
        (
            cell
            for cell in progress.queued
            if cell.needs is None or cell.needs.hash not in unfinished
        ),
        None,
    )


def _start(cell: Work, directory: Path, threads: int, device: str | None) -> Running:
    for file in (cells.failure_file, cells.result_file):
        file(cell, directory).unlink(missing_ok=True)  # the result is a damaged one
    # One pipe each, because a shared queue's lock would die with the child that holds it.
    receiver, sender = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("forkserver")  # imports once, not for every cell
    context.set_forkserver_preload([type(cell).__module__])
    process = context.Process(
        target=cells.work, args=(cell, directory, threads, device, sender), daemon=True
    )
    # Ctrl-C is for the parent alone: the child inherits the mask, and ignores the signal before
    # anything else in `work`. The tracker that a first start begins would lift the mask again.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    sender.close()
    return Running(cell, process, receiver, time.monotonic())


def _listen(running: Running) -> None:
    try:
        while running.connection.poll():
            running.report = running.connection.recv()
    except (EOFError, OSError):
        return  # it has ended, perhaps in mid-sentence


def _conclude(running: Running, progress: Progress, directory: Path, keep_runs: bool) -> str:
    """Count a cell whose process has ended; a line of news about it."""
    cell, code = running.cell, running.process.exitcode
    running.connection.close()
    if code == 0 and cells.result_file(cell, directory).exists():
        progress.finished += 1
        progress.paces.append(running.seconds / (cell.cost * (1 - running.report.resumed_at)))
        cells.failure_file(cell, directory).unlink(missing_ok=True)
        if not keep_runs:
            shutil.rmtree(cells.run_folder(cell, directory), ignore_errors=True)
            cells.log_file(cell, directory).unlink(missing_ok=True)
        return f"{cell.label}: finished in {running.seconds:.0f} s"
    progress.failed.append(cell)
    if not cells.failure_file(cell, directory).exists():
        cells.write_failure(cell, directory, _death(code, cells.log_file(cell, directory)))
    reason = read_json(cells.failure_file(cell, directory))["reason"].splitlines()[-1]
    return f"{cell.label}: failed, {reason}"


def _death(code: int | None, log: Path) -> str:
    """Why a process ended that could not say so itself."""
    printed = log.read_text(errors="replace").splitlines()[-6:] if log.exists() else []
    if code is not None and code < 0:
        killed = f"killed by {signal.Signals(-code).name}"
        out_of_memory = ", as happens when memory runs out" if -code == signal.SIGKILL else ""
        return "\n".join([*printed, killed + out_of_memory])
    return "\n".join([*printed, f"the process ended with status {code} and no result"])


def _stop(running: Sequence[Running]) -> None:
    """Ask the processes to stop, give them time for a checkpoint, then end them."""
    for one in running:
        one.process.terminate()
    patience = time.monotonic() + PATIENCE_SECONDS
    try:
        for one in running:
            one.process.join(max(0.0, patience - time.monotonic()))
    finally:
        # on a second Ctrl-C too
        for one in running:
            one.process.kill()
            one.process.join()
            one.connection.close()


def _declare(study: Study | Extension, directory: Path, scale: str, grid: Sequence[Work]) -> None:
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


def _hash_today(
    study: Study | Extension, scale: str, arm: str, encoding: str, seed: int
) -> str | None:
    """The hash of the cell there, or None where there can be none any more."""
    try:
        cell = study.cell(scale, arm, encoding, seed)
    except UsageError:
        return None
    return None if cell is None else cell.hash
