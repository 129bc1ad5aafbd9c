"""`milepost study`: a paper's table, every encoding, task and seed of it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from milepost.study.executors import Executor
    from milepost.study.kinds import AnyStudy


@dataclass(frozen=True)
class Arguments:
    """Run a paper's table: train and test every encoding on every task with every seed.

    The results stay in the folder, one file each. Run again, a study skips what is finished,
    shows what failed, and goes on with what was stopped.
    """

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = None
    """One of `milepost study --list`, such as cope-table2 (flip-flop, selective copy)."""
    list: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """List the studies, and do nothing else."""
    scale: Literal["mini", "paper"] = "mini"
    """The paper's own sizes, or a small version for minutes on a CPU."""
    encodings: Annotated[str | None, tyro.conf.arg(metavar="A,B,...")] = None
    """The rows: names from `milepost encodings`, or the study's own; all of the study's if left
    out."""
    seeds: int | None = None
    """How many; the paper's number if left out."""
    jobs: int | None = None
    """How many runs at once; one for each core, or one on a GPU, if left out. With Slurm, all."""
    device: str | None = None
    """cpu or cuda; the first GPU if there is one."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """The folder for results; runs/NAME-SCALE if left out. Results of the same runs in folders
    beside it are taken."""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """What differs from the scale, such as steps=10 clip=none, in every run whose task has it; of
    tape-table2 also checkpoint=PATH corpus=PATH."""
    retry: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Run what failed before once more."""
    keep_runs: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Keep the models and metrics of finished runs, under runs/ in the folder."""
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Run nothing: show what would run, and what time, memory and disk it would take."""
    tokens_per_second: float | None = None
    """For --dry-run: the speed of training where it will run, which is measured here if left
    out."""
    executor: Literal["local", "slurm"] = "local"
    """Processes on this machine, or jobs of a Slurm cluster."""
    slurm: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Of a job, as submitit has them: timeout_min=600 gpus_per_node=1 slurm_partition=gpu."""
    detach: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """With Slurm: leave once the jobs are submitted. The same command finds them again."""


def run(arguments: Arguments) -> int:
    """Run what is missing, then show the table and write the page."""
    if arguments.list:
        return show_list()

    from milepost import studies
    from milepost.commands.pairs import pairs
    from milepost.errors import UsageError
    from milepost.study.study import Study

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError(
            f"milepost study starts processes of its own, got one of {os.environ['WORLD_SIZE']} of "
            "torchrun: leave torchrun out, or give --executor slurm for many machines"
        )
    if arguments.name is None:
        raise UsageError(f"give the name of a study: one of {', '.join(studies.names())}")
    study = studies.load(arguments.name)
    if arguments.settings:
        study = study.with_settings(pairs("settings", arguments.settings))
        for name, arms in study.lacking.items() if type(study) is Study else ():
            told = f"{name} is left out of {', '.join(arms)}, whose task has no such setting"
            print(f"note: {told}", file=sys.stderr)
    if arguments.tokens_per_second is not None and not arguments.dry_run:
        raise UsageError("--tokens-per-second is for --dry-run: give both, or leave it out")
    executor = executor_of(arguments, study)
    directory = arguments.out or Path("runs", f"{study.name}-{arguments.scale}")
    if arguments.dry_run:
        return foretell(arguments, study, directory, executor)
    return work(arguments, study, directory, executor)


def show_list() -> int:
    """Print the studies there are."""
    from rich.console import Console

    from milepost.report import listing

    console = Console(highlight=False)
    for line in listing.lines():
        console.print(line)
    return 0


def executor_of(arguments: Arguments, study: AnyStudy) -> Executor:
    """Where the cells run."""
    from milepost.commands.pairs import pairs
    from milepost.errors import UsageError

    if arguments.executor == "slurm" and not arguments.dry_run:
        from milepost.study.executors.slurm import Slurm

        options = pairs("slurm", arguments.slurm)
        return Slurm(arguments.jobs, arguments.device, options, detached=arguments.detach)
    if arguments.executor == "local" and (arguments.slurm or arguments.detach):
        given = "--slurm" if arguments.slurm else "--detach"
        raise UsageError(f"{given} is for jobs of a cluster: add --executor slurm, or leave it out")

    from milepost.study.executors.local import Local

    if study.alone and (arguments.jobs or 1) > 1:
        raise UsageError(
            f"{study.name} times its cells, which must be alone: leave --jobs out, got "
            f"{arguments.jobs}"
        )
    return Local(1 if study.alone else arguments.jobs, arguments.device)


def rows_of(arguments: Arguments, study: AnyStudy) -> list[str] | None:
    """The rows that were asked for. A row's own name may have commas in it."""
    if arguments.encodings is None:
        return None
    parts, rows = arguments.encodings.split(","), []
    while parts:
        named = [
            count
            for count in range(len(parts), 1, -1)
            if ",".join(parts[:count]).strip() in study.encodings
        ]
        count = named[0] if named else 1
        rows.append(",".join(parts[:count]).strip())
        parts = parts[count:]
    return rows


def foretell(arguments: Arguments, study: AnyStudy, directory: Path, executor: Executor) -> int:
    """Show what would run and what it would take."""
    from rich.console import Console

    from milepost.report import forecast as shown
    from milepost.report.write import LOG_WIDTH
    from milepost.study.executors.local import usable_cores
    from milepost.study.forecast import forecast
    from milepost.study.plan import grid_of, plan

    grid = grid_of(study, arguments.scale, rows_of(arguments, study), arguments.seeds)
    found = plan(grid, directory, retry=arguments.retry)
    places = executor.places(len(found.todo))
    if arguments.executor == "slurm":
        places = max(1, min(arguments.jobs or len(found.todo), len(found.todo)))
    expected = forecast(
        grid,
        found,
        directory,
        places=places,
        threads=max(1, usable_cores() // places),
        device=arguments.device,
        tokens_per_second=arguments.tokens_per_second,
    )
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=LOG_WIDTH)
    console.print(f"{study.name}, {arguments.scale} scale, into {directory}", markup=False)
    if found.todo:
        console.print(shown.table(expected))
    for line in shown.summary(found, expected, len(grid)):
        console.print(line, markup=False)
    return 0


def work(arguments: Arguments, study: AnyStudy, directory: Path, executor: Executor) -> int:
    """Run what is missing, then show the table and write the page."""
    from importlib.util import find_spec

    from milepost import machine
    from milepost.report.live import StudyLines
    from milepost.report.write import show_and_write
    from milepost.study.run import run as run_study
    from milepost.wording import counted

    if find_spec("matplotlib") is None:
        print(
            "note: no plots and no page without matplotlib, the table comes all the same; "
            'pip install "milepost[plot]"',
            file=sys.stderr,
        )
    if arguments.device in (None, "cpu") and machine.kernels() is None:
        print(
            "note: on CPUs the runs take the slower path, as milepost was installed without its "
            "compiled kernels; times are those of that path",
            file=sys.stderr,
        )
    try:
        with StudyLines(f"{study.name}, {arguments.scale} scale") as lines:
            progress = run_study(
                study,
                directory,
                scale=arguments.scale,
                encodings=rows_of(arguments, study),
                seeds=arguments.seeds,
                retry=arguments.retry,
                executor=executor,
                keep_runs=arguments.keep_runs,
                watch=lines,
            )
    except KeyboardInterrupt:
        left = "the jobs go on (scancel ends them); " if arguments.executor == "slurm" else ""
        print(
            f"stopped; {left}the same command goes on from here, and "
            f"`milepost report {directory}` shows what there is",
            file=sys.stderr,
        )
        return 130
    if progress.running:
        queued = len(progress.queued)
        waiting = f", {counted(queued, 'waits', 'wait')} for others" if queued else ""
        jobs = counted(len(progress.running), "job is", "jobs are")
        print(
            f"{jobs} with the cluster{waiting}; the same command "
            "collects what is done and submits what can begin",
            file=sys.stderr,
        )
    else:
        show_and_write(directory)
    return 1 if progress.failed or progress.stopped else 0
