"""`milepost evaluate`: errors of a trained model on its test sets, or its perplexity of text."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro


@dataclass(frozen=True)
class Arguments:
    """Test a trained model on its task's test sets, or on the test documents of a text."""

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """The run's folder, as `milepost train` wrote it."""
    test_set: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Only this one; all of them if left out. Of text, error rates instead of perplexity."""
    sequences: int = 512
    """How many of each test set; of text, score as many tokens as in so many trained windows."""
    window: int | None = None
    """Of text: read so many tokens at a time; the trained length, twice and four times if left
    out."""
    stride: int | None = None
    """Of text: from one window to the next; windows do not overlap if left out."""
    by_position: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Of text: also the nats of a token by its position in the window."""
    task_settings: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Settings of the task that replace the test sets' own, such as length=4096."""
    seed: int = 0
    """Another seed draws other test sequences."""
    device: str | None = None
    """cpu or cuda; the first GPU if there is one."""


def run(arguments: Arguments) -> int:
    """Print a table of error rates or perplexities; 1 if the model refused one."""
    from milepost.errors import UsageError
    from milepost.study.study import DECLARATION

    if (arguments.directory / DECLARATION).exists():
        raise UsageError(
            f"{arguments.directory} is the folder of a study, expected that of a run of `milepost "
            f"train`: `milepost report {arguments.directory}` shows what the study measured"
        )
    asked = (arguments.window, arguments.stride, arguments.by_position or None)
    if arguments.test_set is None and _is_of_text(arguments.directory):
        return _run_text(arguments)
    if any(option is not None for option in asked):
        raise UsageError(
            "--window, --stride and --by-position are for runs of the task text, without "
            "--test-set: leave them out"
        )
    return _run_errors(arguments)


def _is_of_text(directory: Path) -> bool:
    from milepost.training import rundir

    config = directory / rundir.CONFIG
    return config.is_file() and rundir.read_settings(directory).task == "text"


def _run_errors(arguments: Arguments) -> int:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from milepost.commands.pairs import pairs
    from milepost.evaluate import evaluate_run
    from milepost.report.results import percent

    errors = evaluate_run(
        arguments.directory,
        [] if arguments.test_set is None else [arguments.test_set],
        task_settings=pairs("task-settings", arguments.task_settings),
        seed=arguments.seed,
        sequences=arguments.sequences,
        device=arguments.device,
    )
    table = Table(title="error in %", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("test set")
    for head in ("tokens", "sequences", "last token", "of sequences"):
        table.add_column(head, justify="right")
    for name, of in errors.items():
        if "refused" not in of:
            rates = (percent(100 * of[metric]) for metric in ("token", "sequence", "last"))
            table.add_row(name, *rates, str(of["sequences"]))
    Console().print(table)
    return _refusals(errors)


def _run_text(arguments: Arguments) -> int:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from milepost.commands.pairs import pairs
    from milepost.errors import UsageError
    from milepost.evaluate import evaluate_text_run

    window, stride = arguments.window, arguments.stride
    if window is not None and stride is not None and stride > window:
        raise UsageError(
            f"--stride must be at most --window, {window}, got {stride}: the tokens in between "
            f"would not be read"
        )
    found = evaluate_text_run(
        arguments.directory,
        windows=[] if window is None else [window],
        stride=stride,
        sequences=arguments.sequences,
        task_settings=pairs("task-settings", arguments.task_settings),
        device=arguments.device,
    )
    measured = {name: of for name, of in found.items() if "refused" not in of}
    console = Console()
    if measured:
        first = next(iter(measured.values()))
        title = (
            f"{first['tokens']:,} tokens of the test documents, {first['bytes']:,} bytes, "
            f"{first['words']:,} words"
        )
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        heads = ("nats a token", "perplexity", "of a word", "bits a byte")
        for head in ("window", *heads):
            table.add_column(head, justify="right")
        for name, of in measured.items():
            table.add_row(
                name,
                _decimal(of["nats"], 4),
                _decimal(of["perplexity"], 3),
                _decimal(of["word_perplexity"], 1),
                _decimal(of["bits_per_byte"], 4),
            )
        console.print(table)
        if arguments.by_position:
            console.print(_positions(measured))
    return _refusals(found)


def _positions(measured: Mapping[str, Mapping[str, Any]]) -> Any:
    """Nats by position: a row for each bucket, a column for each window."""
    from rich import box
    from rich.table import Table

    title = "nats of a token by how many were read in its window"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("up to", justify="right")
    columns = [
        dict(zip(of["position"], of["by_position"], strict=True)) for of in measured.values()
    ]
    for name in measured:
        table.add_column(f"window {name}", justify="right")
    for end in sorted({end for column in columns for end in column}):
        cells = ("" if end not in column else _decimal(column[end], 4) for column in columns)
        table.add_row(str(end), *cells)
    return table


def _decimal(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _refusals(found: Mapping[str, Mapping[str, Any]]) -> int:
    """Say what the model refused; the exit status."""
    refused = {name: of["refused"] for name, of in found.items() if "refused" in of}
    for name, reason in refused.items():
        print(f"{name}: {reason}")
    return 1 if refused else 0
