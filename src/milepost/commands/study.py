"""`milepost study`: a paper's table, every encoding, task and seed of it."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Arguments:
    """Run a paper's table: train and test every encoding on every task with every seed.

    The results stay in the folder, one file each. Run again, a study skips what is finished,
    tries what failed once more, and goes on with what was stopped.
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """cope-table2 (flip-flop, selective copy), cope-table3 (counting) or tape-table2 (extending the
    context of a trained model)."""
    scale: Literal["mini", "paper"] = "mini"
    """The paper's own sizes, or a small version for minutes on a CPU."""
    encodings: Annotated[str | None, tyro.conf.arg(metavar="A,B,...")] = None
    """The rows, from `milepost encodings`, or of tape-table2 by its own names; the study's own if
    left out."""
    seeds: int | None = None
    """How many; the paper's number if left out."""
    jobs: int | None = None
    """How many runs at once; one for each core, or one on a GPU, if left out."""
    device: str | None = None
    """cpu or cuda; the first GPU if there is one."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """The folder for results; runs/NAME-SCALE if left out."""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Of tape-table2: what differs from the scale, such as steps=10 checkpoint=PATH corpus=PATH."""
    keep_runs: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Keep the models and metrics of finished runs, under runs/ in the folder."""


def run(arguments: Arguments) -> int:
    """Run what is missing, then show the table and write the page."""
    from importlib.util import find_spec

    from milepost import studies
    from milepost.commands.pairs import pairs
    from milepost.errors import UsageError
    from milepost.report.live import StudyLines
    from milepost.report.write import show_and_write
    from milepost.studies.extension import Extension
    from milepost.studies.run import run as run_study

    study = studies.load(arguments.name)
    if arguments.settings and not isinstance(study, Extension):
        raise UsageError(
            f"--settings is for studies of context extension such as tape-table2, got it with "
            f"{study.name}: leave it out, the scale says all"
        )
    if isinstance(study, Extension):
        study = study.with_settings(pairs("settings", arguments.settings))
    directory = arguments.out or Path("runs", f"{study.name}-{arguments.scale}")
    encodings = arguments.encodings
    if find_spec("matplotlib") is None:
        print(
            "note: no plots and no page without matplotlib, the table comes all the same; "
            'pip install "milepost[plot]"',
            file=sys.stderr,
        )
    try:
        with StudyLines(f"{study.name}, {arguments.scale} scale") as lines:
            progress = run_study(
                study,
                directory,
                scale=arguments.scale,
                encodings=None
                if encodings is None
                else [encoding.strip() for encoding in encodings.split(",")],
                seeds=arguments.seeds,
                jobs=arguments.jobs,
                device=arguments.device,
                keep_runs=arguments.keep_runs,
                watch=lines,
            )
    except KeyboardInterrupt:
        print(
            "stopped; the same command goes on from here, and "
            f"`milepost report {directory}` shows what there is",
            file=sys.stderr,
        )
        return 130
    show_and_write(directory)
    return 1 if progress.failed else 0
