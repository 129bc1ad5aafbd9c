"""Cells as jobs of a Slurm cluster, by submitit.

All cells that wait for no other are submitted at once, as one array. A job begins its cell's
process on the node it is given, as the local pool would, and tells the folder how far it is. When
its time is up, or somebody with more right wants the node, it stops the process at a checkpoint
and queues itself again, from where it goes on.

A job needs nobody who waits for it. `slurm/HASH.json` in the folder names the job of a cell, by
which another command finds what an earlier one submitted; `slurm/HASH.report.json` is how far it
is. Results go where the local pool's go, and the folder must be one that all nodes see.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from types import ModuleType
from typing import Any

from milepost.errors import UsageError
from milepost.files import read_object, write_json
from milepost.study import work
from milepost.study.executors import local
from milepost.study.progress import Running
from milepost.study.work import Report, Work

POLL_SECONDS = 1.0
REPORT_SECONDS = 5.0

# submitit's own are 5 minutes, and 3 times that a job may run out of them
DEFAULTS: dict[str, Any] = {"name": "milepost", "timeout_min": 240}
TIMEOUTS = 100

# A process that was told to stop while its job was not: the job is about to be told, or ended
GRACE_SECONDS = 600.0


@dataclass
class Submitted(Running):
    """A cell's job."""

    job: Any
    file: Path

    def listen(self) -> None:
        """Read what the job last wrote."""
        with suppress(UsageError):
            if self.file.exists():
                said = read_object(self.file, ("share", "doing", "resumed_at", "began"))
                self.report = Report(said["share"], said["doing"], said["resumed_at"])
                self.began = time.monotonic() - (time.time() - said["began"])

    @property
    def ended(self) -> bool:
        return bool(self.job.done())

    @property
    def cancelled(self) -> bool:
        """Whether somebody took it back."""
        return "CANCEL" in str(self.job.state).upper()

    def close(self) -> None:
        """Forget the job."""
        _record(self.file).unlink(missing_ok=True)
        self.file.unlink(missing_ok=True)

    def death(self) -> str | None:
        """What the cluster says of a job that could not say it itself."""
        if self.cancelled or "COMPLETED" in str(self.job.state).upper():
            return None
        printed = (self.job.stderr() or "").splitlines()[-6:]
        said = f": {printed[-1]}" if printed else ""
        state = f"job {self.job.job_id} ended as {self.job.state} without a result{said}"
        return "\n".join([*printed, state])


class Slurm:
    """Jobs of a cluster."""

    def __init__(
        self,
        jobs: int | None = None,
        device: str | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        detached: bool = False,
        cluster: str = "slurm",
    ) -> None:
        """For `jobs` cells at once, all if None.

        Args:
            jobs: how many of an array may run at a time.
            device: that a cell takes on its node; the first GPU, or else the CPU, if None.
            options: of submitit's AutoExecutor, such as timeout_min and slurm_partition.
            detached: leave once all is submitted.
            cluster: another of submitit's executors, "local" to try it out.

        Raises:
            UsageError: submitit or Slurm is missing here, or an option is not valid.
        """
        if jobs is not None and jobs < 1:
            raise UsageError(f"jobs must be at least 1, got {jobs}: leave it out for all at once")
        self.device = device
        self.detached = detached
        self.cluster = cluster
        self.options = {**DEFAULTS, **(options or {})}
        if jobs is not None:
            self.options.setdefault("slurm_array_parallelism", jobs)
        self._executor(Path())  # so that a mistake is found before anything is written

    def _executor(self, folder: Path) -> Any:
        submitit = _submitit()
        options = dict(self.options)
        timeouts = options.pop("slurm_max_num_timeout", TIMEOUTS)
        try:
            executor = submitit.AutoExecutor(
                folder, cluster=self.cluster, slurm_max_num_timeout=timeouts
            )
        except RuntimeError as error:
            raise UsageError(
                f"executor slurm cannot be used here ({error}): run the command where srun and "
                f"sbatch are, or leave --executor out"
            ) from error
        try:
            executor.update_parameters(**options)
        except (NameError, ValueError, TypeError, AssertionError) as error:
            raise UsageError(
                f"slurm takes submitit's options, such as timeout_min=600 gpus_per_node=1 "
                f"slurm_partition=gpu, got what it refuses: {' '.join(str(error).split())}"
            ) from error
        return executor

    def places(self, cells: int) -> int:
        """All of them are submitted: it is for the cluster to say who waits."""
        return max(1, cells)

    def begin(self, directory: Path, cells: Sequence[Work]) -> list[Running]:
        """The jobs that an earlier command submitted."""
        self.directory = directory.resolve()
        self.folder = self.directory / "slurm"
        self.executor = self._executor(self.folder)
        submitted = [self._found(cell) for cell in cells]
        return [one for one in submitted if one is not None]

    def _found(self, cell: Work) -> Submitted | None:
        """The job of the cell, unless there is none, it was taken back, or its failure is known.

        A cell whose failure is known is among those to do only because it is tried once more.
        """
        path = self.folder / f"{cell.hash}.json"
        if not path.exists():
            return None
        try:
            name = str(read_object(path, ("job",))["job"])
        except UsageError:
            return None
        kind = _submitit().core.plugins.get_executors()[self.cluster].job_class
        found = self._submitted(cell, kind(folder=self.folder, job_id=name))
        known = work.failure_file(cell, self.directory).exists()
        if found.ended and (found.cancelled or known):
            found.close()
            return None
        return found

    def _submitted(self, cell: Work, job: Any) -> Submitted:
        said = Report(0.0, f"queued as job {job.job_id}")
        file = self.folder / f"{cell.hash}.report.json"
        return Submitted(cell, time.monotonic(), job, file, report=said)

    def start(self, cells: Sequence[Work]) -> list[Running]:
        """Submit these, as one array."""
        if not cells:
            return []
        try:
            with self.executor.batch():
                jobs = [
                    self.executor.submit(Job(cell, self.directory, self.device)) for cell in cells
                ]
        except (RuntimeError, OSError) as error:
            raise UsageError(
                f"the jobs cannot be submitted, sbatch says: {' '.join(str(error).split())}; "
                f"change --slurm, or --executor local"
            ) from error
        submitted: list[Running] = []
        for cell, job in zip(cells, jobs, strict=True):
            write_json(self.folder / f"{cell.hash}.json", {"job": job.job_id})
            submitted.append(self._submitted(cell, job))
        return submitted

    def wait(self, running: Sequence[Running]) -> None:
        """A moment."""
        time.sleep(POLL_SECONDS)

    def leave(self, running: Sequence[Running]) -> None:
        """The jobs go on."""

    def end(self) -> None:
        """Remove what submitit left, if there is no job any more that it belongs to."""
        if not any(self.folder.glob("*.json")):
            shutil.rmtree(self.folder, ignore_errors=True)


@dataclass
class Job:
    """What a job of the cluster does, in submitit's terms: a call, and what it does to go on later.

    Its process is a child of the job's: signals for the job find it waiting, not in the middle of
    a step.
    """

    cell: Work
    directory: Path
    device: str | None
    child: local.Child | None = field(default=None, repr=False)

    def __call__(self) -> None:
        """Run the cell to its end."""
        if work.result_file(self.cell, self.directory).exists():
            return  # it was queued again just after its end
        child = local.start(self.cell, self.directory, local.usable_cores(), self.device)
        self.child = child
        began, said = time.time(), 0.0
        while not child.ended:
            wait([child.process.sentinel, child.connection], timeout=local.TICK_SECONDS)
            child.listen()
            if time.monotonic() - said > REPORT_SECONDS:
                self.tell(child.report, began)
                said = time.monotonic()
        child.listen()
        self.tell(child.report, began)
        child.close()
        if work.result_file(self.cell, self.directory).exists():
            return
        if work.failure_file(self.cell, self.directory).exists():
            return
        if (reason := child.death()) is not None:
            work.write_failure(self.cell, self.directory, reason)
            return
        time.sleep(GRACE_SECONDS)

    def tell(self, report: Report, began: float) -> None:
        """Write how far the cell is."""
        path = self.directory / "slurm" / f"{self.cell.hash}.report.json"
        where = {"host": os.uname().nodename, "process": os.getpid()}
        write_json(path, {**asdict(report), "began": began, **where})

    def checkpoint(self) -> Any:
        """Stop at a checkpoint; what is to be queued."""
        if self.child is not None:
            local.stop([self.child])
        return _submitit().helpers.DelayedSubmission(Job(self.cell, self.directory, self.device))


def _record(report: Path) -> Path:
    """Where the job is named whose report this is."""
    return report.with_name(report.name.replace(".report", ""))


def _submitit() -> ModuleType:
    try:
        import submitit
        import submitit.core.plugins
    except ImportError as error:
        raise UsageError(
            'executor slurm needs submitit, which is not installed: pip install "milepost[cluster]"'
        ) from error
    return submitit
