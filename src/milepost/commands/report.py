"""`milepost report`: a study's table, plots and page, drawn again from its results."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Arguments:
    """Draw a study's table, plots and page from the results in its folder, finished or not."""

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """The study's folder, as `milepost study` wrote it; with --summary a folder of such folders."""
    summary: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write all studies in DIR, with every claim, on one page of Markdown, and its pictures
    beside it."""


def run(arguments: Arguments) -> int:
    """Print the table and write the rest, or write the summary."""
    if arguments.summary is not None:
        from milepost.report import summary

        summary.write(arguments.directory, arguments.summary)
        print(arguments.summary)
        return 0
    from milepost.report.write import show_and_write

    show_and_write(arguments.directory)
    return 0
