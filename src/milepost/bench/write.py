"""Where a benchmark's files lie, and all that is drawn from the results.

NAME.json               the results
NAME.md                 the tables as Markdown
NAME-1-thread.svg, ...  the plots
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from milepost.bench import plot, table
from milepost.bench.results import Record
from milepost.errors import UsageError
from milepost.files import write_text

if TYPE_CHECKING:
    from rich.console import RenderableType

FOLDER = Path("runs", "bench")
LOG_WIDTH = 160


def place(
    *, date: str, kernels: str, out: Path | None, file: Path | None, device: str = "cpu"
) -> Path:
    """The path of the results: `file`, or DATE-cpu-KERNELS.json in `out`, numbered if need be."""
    if file is not None:
        if file.suffix != ".json":
            raise UsageError(f"json must be a path that ends in .json, got {file}: add the ending")
        if file.exists():
            raise UsageError(
                f"json must be a new file, {file} exists: delete it, or choose another path"
            )
        return file
    folder = FOLDER if out is None else out
    stem = f"{date}-{device}-{kernels}"
    names = (f"{stem}{'' if number == 1 else f'-{number}'}.json" for number in count(1))
    return next(path for name in names if not (path := folder / name).exists())


def show(record: Record, *, only_summary: bool = False) -> None:
    """Print the tables."""
    print_all(table.terminal(record, only_summary=only_summary))


def print_all(renderables: Iterable[RenderableType]) -> None:
    """Print tables and notes, wide where nobody's terminal says how wide."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=LOG_WIDTH)
    for renderable in renderables:
        console.print(renderable)


def write(record: Record, folder: Path, stem: str) -> list[Path]:
    """Write the tables and, where there is matplotlib, the plots; the paths."""
    texts = {f"{stem}.md": table.markdown(record)}
    if find_spec("matplotlib") is not None:
        texts |= {f"{stem}-{name}.svg": svg for name, svg in plot.draw(record).items()}
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]
