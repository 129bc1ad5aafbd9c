"""`milepost look`: what the heads of a model count, as a page or as a figure."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from milepost.errors import UsageError

if TYPE_CHECKING:
    from milepost.look import Counted, Subject

PAGE = Path("look.html")
GENERATOR = b'<meta name="generator" content="milepost look">'
HEADS_SHOWN = 12


@dataclass(frozen=True)
class Arguments:
    """Show what each head of a model counts, forgets or attends to in a text.

    It writes one HTML file that needs neither a server nor a network, and prints what the most
    selective heads count. Of several models, one is chosen on the page. Without a text a run shows
    a test sequence of its own task. With --figure it draws one head for a paper instead.
    """

    directories: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR")
    ] = ()
    """Runs of `milepost train`, or Hugging Face folders with one of our encodings."""
    text: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    """The text; for a task with words of its own these, such as "w 0 i 1 r"."""
    file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Read the text from a file, in UTF-8."""
    task: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """A test sequence of the task that the model was trained on, as without a text."""
    length: int | None = None
    """Of the task's sequence, where it has that setting; of text, 512 tokens unless given."""
    sequence: int = 0
    """Which of the task's test sequences."""
    tokens: int = 2000
    """Show so many tokens at most, the first."""
    demo: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Look at two small CoPE models, of flip-flop and of text: trained in about two minutes, in
    runs/look, or taken from there. The page is opened if this is a terminal."""
    figure: tuple[Literal["gates", "positions", "attention", "alone"], ...] = ()
    """Draw these of one head, side by side; alone is attention by position alone."""
    layer: int | None = None
    """Of --figure; the most selective head if left out."""
    head: int | None = None
    """Of --figure."""
    last: int | None = None
    """Draw the last so many tokens alone."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", aliases=["-o"])] = None
    """The page (look.html), or the figure: .svg, .pdf or .png."""
    device: str | None = None
    """cpu or cuda; the first GPU if there is one."""


def run(arguments: Arguments) -> int:
    """Write the page or the figure."""
    check(arguments)
    out = arguments.out or (Path("look.svg") if arguments.figure else PAGE)
    check_path(out, bool(arguments.figure))
    directories = arguments.directories
    if arguments.demo:
        directories = trained(arguments.device)
        if not directories:
            return 130
    from milepost.commands.subjects import subject

    subjects = [subject(directory, arguments) for directory in directories]
    if arguments.figure:
        return draw(subjects[0], arguments, out)
    from milepost.look import write
    from milepost.report.live import CountLine

    with CountLine("drawing", "layer") as line:
        counts = write(subjects, out, line)
    for each, layers in zip(subjects, counts, strict=True):
        show(each.title, layers)
    size = out.stat().st_size / 1e3
    shown = f"{size:.0f} kB" if size < 1000 else f"{size / 1e3:.1f} MB"
    print(f"{out}: a page of {shown}, to be opened in a browser")
    if arguments.demo and sys.stdout.isatty():
        import webbrowser

        webbrowser.open(out.resolve().as_uri())
    return 0


def check(arguments: Arguments) -> None:
    """A `UsageError` for what is missing, or would not be heeded."""
    folders = len(arguments.directories)
    if arguments.demo == bool(folders):
        raise UsageError(
            f"expected the folder of a model, or --demo for models of its own, got "
            f"{'both' if folders else 'neither'}: give one of the two"
        )
    texts = {
        "--text": arguments.text is not None,
        "--file": arguments.file is not None,
        "--task": arguments.task is not None,
        "--demo": arguments.demo,
    }
    chosen = [option for option, is_given in texts.items() if is_given]
    if len(chosen) > 1:
        raise UsageError(
            f"expected one of {', '.join(texts)}, got {' and '.join(chosen)}: give one"
        )
    if (arguments.text, arguments.file) != (None, None):
        for option, left_out in (
            ("length", arguments.length is None),
            ("sequence", arguments.sequence == 0),
        ):
            if not left_out:
                raise UsageError(
                    f"--{option} must be left out with {chosen[0]}, which is shown as it is: "
                    f"it is of a task's sequences"
                )
    if arguments.tokens < 1:
        raise UsageError(f"--tokens must be at least 1, got {arguments.tokens}: give more")
    if arguments.figure:
        if folders > 1 or arguments.demo:
            raise UsageError("--figure is of one model: name its folder, and no other")
        if (arguments.layer is None) != (arguments.head is None):
            raise UsageError("--layer and --head go together: give both, or neither")
        return
    for option in ("layer", "head", "last"):
        if getattr(arguments, option) is not None:
            raise UsageError(
                f"--{option} is of --figure: add --figure gates, or leave it out and choose the "
                f"head on the page"
            )


def check_path(path: Path, figure: bool) -> None:
    """A `UsageError` unless it is a name for what is written, and nothing is lost there.

    A page may take the place of a page, and of nothing else.
    """
    from milepost.files import cannot_write
    from milepost.report.heads import FORMATS

    endings = FORMATS if figure else (".html", ".htm")
    if path.suffix.lower() not in endings:
        raise UsageError(
            f"--out must end in {' or '.join(endings)} for a {'figure' if figure else 'page'}, got "
            f"{str(path)!r}: name another file"
        )
    try:
        if not path.exists():
            return
        if not figure and path.is_file():
            with path.open("rb") as file:
                if GENERATOR in file.read(2000):
                    return
    except OSError as error:
        raise cannot_write(path, error) from error
    what = "already" if figure else "and is no page of milepost look"
    raise UsageError(f"--out {path} exists {what}: name a file that does not, or delete it")


def trained(device: str | None) -> tuple[Path, ...]:
    """The folders of the demo's models, trained where they are not; none if that was stopped."""
    from milepost.look import demo
    from milepost.report.live import TrainingLine

    runs = demo.runs()
    for folder in demo.missing(runs):
        print(f"training {folder}", file=sys.stderr)
        with TrainingLine() as line:
            ended = demo.make(folder, runs[folder], line, device)
        if not ended:
            print("stopped; milepost look --demo goes on from there", file=sys.stderr)
            return ()
    return tuple(runs)


def draw(subject: Subject, arguments: Arguments, out: Path) -> int:
    """Write the figure of one head."""
    from milepost.look import counted, shown
    from milepost.report import heads

    layer, head = arguments.layer, arguments.head
    if layer is None or head is None:
        arrays, places = shown(subject.trace), by_selectivity(counted(subject))
        # with first_layer_only some layers have less to show
        able = [place for place in places if {*arguments.figure} <= arrays[place[0]].keys()]
        layer, head = (able or places)[0]
    heads.save(out, subject, arguments.figure, layer, head, last=arguments.last)
    print(f"{out}: {' and '.join(arguments.figure)} of layer {layer}, head {head}")
    return 0


def by_selectivity(layers: Sequence[Counted]) -> list[tuple[int, int]]:
    """Layer and head of all heads, the most selective first, and those without gates last."""

    def order(place: tuple[int, int]) -> tuple[bool, float]:
        layer = layers[place[0]]
        return layer.of != "gates", -float(layer.selectivity[place[1]])

    places = [(n, head) for n, layer in enumerate(layers) for head in range(len(layer.amount))]
    return sorted(places, key=order)


def percent(share: float) -> str:
    """A dash where it is a share of nothing."""
    return f"{100 * share:.0f} %" if share == share else "–"


def show(title: str, layers: Sequence[Counted]) -> None:
    """Print how much heads count, the most selective first, and the share of each class in it."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    classes, places = layers[0].classes, by_selectivity(layers)
    meanings = dict.fromkeys(layers[layer].meaning for layer, _ in places)
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, title=Text(title, "bold"), title_justify="left"
    )
    table.add_column("layer.head", no_wrap=True)
    table.add_column("; else ".join(meanings), justify="right")
    for name in classes:
        table.add_column(Text(f"on {name}"), justify="right")
    for layer, head in places[:HEADS_SHOWN]:
        shares = layers[layer].share()[head].tolist()
        amount = percent(layers[layer].amount[head].item())
        table.add_row(f"{layer}.{head}", amount, *map(percent, shares))
    even = layers[0].pairs.sum(0) / layers[0].pairs.sum()
    table.add_row("all, if even", "", *map(percent, even.tolist()))
    if len(places) > HEADS_SHOWN:
        table.caption = f"{HEADS_SHOWN} of {len(places)} heads; all are on the page"
    Console().print(table)
