"""`milepost evaluate`: a trained model's errors on its task's test sets."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Arguments:
    """Test a trained model on its task's test sets."""

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """The run's folder, as `milepost train` wrote it."""
    test_set: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Only this one; all of them if left out."""
    sequences: int = 512
    """How many of each test set."""
    task_settings: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Settings of the task that replace the test sets' own, such as length=4096."""
    seed: int = 0
    """Another seed draws other test sequences."""
    device: str | None = None
    """cpu or cuda; the first GPU if there is one."""


def run(arguments: Arguments) -> int:
    """Print a table of error rates; 1 if the model refused a test set."""
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
    console = Console()
    console.print(table)
    for name, of in errors.items():
        if "refused" in of:
            console.print(f"{name}: {of['refused']}", markup=False)
    return 1 if any("refused" in of for of in errors.values()) else 0
