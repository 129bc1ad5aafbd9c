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
    check(arguments.directory, arguments.summary)
    if arguments.summary is not None:
        from milepost.report import summary

        summary.write(arguments.directory, arguments.summary)
        print(arguments.summary)
        return 0
    from milepost.report.write import show_and_write

    show_and_write(arguments.directory)
    return 0


def check(folder: Path, summary: Path | None) -> None:
    """A `UsageError` for one study where several are summed up, and for several without that."""
    from milepost.errors import UsageError
    from milepost.study.study import DECLARATION
    from milepost.wording import counted

    alone = (folder / DECLARATION).exists()
    inside = sorted(path.parent for path in folder.glob(f"*/{DECLARATION}"))
    if summary is not None and alone and not inside:
        raise UsageError(
            f"{folder} is the folder of one study, and --summary takes a folder of such folders: "
            f"leave --summary out, or give the folder that this one is in"
        )
    if summary is None and inside and not alone:
        raise UsageError(
            f"{folder} has the folders of {counted(len(inside), 'study', 'studies')}: give one of "
            f"them, as {inside[0]}, or add --summary FILE for all of them on one page"
        )
