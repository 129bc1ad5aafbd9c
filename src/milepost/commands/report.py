"""`milepost report`: a study's table, plots and page, drawn again from its results."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Arguments:
    """Draw a study's table, plots and page from the results in its folder, finished or not."""

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """The study's folder, as `milepost study` wrote it."""


def run(arguments: Arguments) -> int:
    """Print the table and write the rest."""
    from milepost.report.write import show_and_write

    show_and_write(arguments.directory)
    return 0
