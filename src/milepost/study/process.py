"""The life of a cell's own process."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from milepost.study.work import Report, Work, log_file, write_failure

REPORT_SECONDS = 0.2


def live(
    cell: Work, directory: Path, threads: int, device: str | None, connection: Connection
) -> None:
    """Run the cell: it finishes, fails or stops alone.

    Ctrl-C reaches a whole group of processes, so it is left to the parent, which asks each child
    to stop by SIGTERM; a parent that has died is noticed by its closed connection.
    """
    # the signal was blocked until here
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stopping = False
    last_report = -math.inf

    def on_terminate(*_: object) -> None:
        nonlocal stopping
        stopping = True

    def report(news: Report) -> None:
        nonlocal last_report, stopping
        if time.monotonic() - last_report < REPORT_SECONDS:
            return
        last_report = time.monotonic()
        try:
            connection.send(news)
        except OSError:
            stopping = True

    signal.signal(signal.SIGTERM, on_terminate)
    try:
        _print_to(log_file(cell, directory))
        torch.set_num_threads(threads)
        cell.run(directory, report=report, stop=lambda: stopping, device=device)
    except Exception as error:
        write_failure(cell, directory, _reason(error))
        sys.exit(1)


def _reason(error: Exception) -> str:
    """The error and where it came from, without the folders of the code."""
    calls = traceback.extract_tb(error.__traceback__)[-6:]
    lines = [f"{Path(call.filename).name}:{call.lineno} in {call.name}" for call in calls]
    return "\n".join([*lines, f"{type(error).__name__}: {error}"])


def _print_to(path: Path) -> None:
    """Send what this process prints, warnings and crash reports included, to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
