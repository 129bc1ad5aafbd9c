"""Cells side by side on this machine, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from milepost.errors import UsageError
from milepost.study import work
from milepost.study.process import live
from milepost.study.progress import Running
from milepost.study.work import Work
from milepost.training.device import choose

TICK_SECONDS = 0.25
PATIENCE_SECONDS = 30.0

# Ctrl-C is for the parent alone, and so is a cluster's warning (`milepost.study.executors.slurm`)
FOR_THE_PARENT = {signal.SIGINT, signal.SIGUSR2}


@dataclass
class Child(Running):
    """A cell's process."""

    process: BaseProcess
    connection: Connection
    log: Path

    def listen(self) -> None:
        """Hear what it has sent."""
        try:
            while self.connection.poll():
                self.report = self.connection.recv()
        except (EOFError, OSError):
            return  # it has ended, perhaps in mid-sentence

    @property
    def ended(self) -> bool:
        return not self.process.is_alive()

    def close(self) -> None:
        """Close the pipe."""
        self.connection.close()

    def death(self) -> str | None:
        """Why the process ended that could not say so itself."""
        code = self.process.exitcode
        if code == 0:
            return None
        printed = (
            self.log.read_text(errors="replace").splitlines()[-6:] if self.log.exists() else []
        )
        if code is not None and code < 0:
            killed = f"killed by {signal.Signals(-code).name}"
            out_of_memory = ", as happens when memory runs out" if -code == signal.SIGKILL else ""
            return "\n".join([*printed, killed + out_of_memory])
        return "\n".join([*printed, f"the process ended with status {code} and no result"])


class Local:
    """Processes on this machine."""

    detached = False

    def __init__(self, jobs: int | None = None, device: str | None = None) -> None:
        """For `jobs` cells at once: if None, one for each core, or one on a GPU.

        Raises:
            UsageError: `jobs` is below 1, or the device cannot be used here.
        """
        if jobs is not None and jobs < 1:
            raise UsageError(
                f"jobs must be at least 1, got {jobs}: leave it out for one for each core"
            )
        self.device = device
        on_gpu = torch.cuda.is_available() if device is None else choose(device).type == "cuda"
        self.jobs = jobs or (1 if on_gpu else usable_cores())

    def places(self, cells: int) -> int:
        """No more than there are cells."""
        return max(1, min(self.jobs, cells))

    def threads(self, cells: int) -> int:
        """How many threads each gets."""
        return max(1, usable_cores() // self.places(cells))

    def begin(self, directory: Path, cells: Sequence[Work]) -> list[Running]:
        """Nothing runs yet: processes end with the command that began them."""
        self.directory = directory
        self.threads_each = self.threads(len(cells))
        return []

    def start(self, cells: Sequence[Work]) -> list[Running]:
        """Begin a process for each."""
        return [start(cell, self.directory, self.threads_each, self.device) for cell in cells]

    def wait(self, running: Sequence[Running]) -> None:
        """Until one of them says something or ends, but not for long."""
        children = [one for one in running if isinstance(one, Child)]
        signs = [sign for one in children for sign in (one.process.sentinel, one.connection)]
        wait(signs, timeout=TICK_SECONDS)

    def leave(self, running: Sequence[Running]) -> None:
        """Stop them at a checkpoint."""
        stop([one for one in running if isinstance(one, Child)])

    def end(self) -> None:
        """Nothing was left anywhere."""


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start(cell: Work, directory: Path, threads: int, device: str | None) -> Child:
    """Begin the cell's process."""
    # One pipe each, because a shared queue's lock would die with the child that holds it.
    receiver, sender = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("forkserver")  # imports once, not for every cell
    context.set_forkserver_preload([type(cell).__module__])
    process = context.Process(
        target=live, args=(cell, directory, threads, device, sender), daemon=True
    )
    # The child inherits the mask, and ignores Ctrl-C before anything else in `live`. The tracker
    # that a first start begins would lift the mask again.
    signal.pthread_sigmask(signal.SIG_BLOCK, FOR_THE_PARENT)
    try:
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, FOR_THE_PARENT)
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FOR_THE_PARENT)
    sender.close()
    log = work.log_file(cell, directory)
    return Child(cell, time.monotonic(), process, receiver, log)


def stop(running: Sequence[Child]) -> None:
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
            one.close()
