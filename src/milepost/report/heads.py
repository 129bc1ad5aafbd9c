"""One head and one text, as a figure for a paper: what it counts, where keys stand, what it takes.

Each array of `milepost.look.shown` is a heat map: rows are the queries, columns the keys, and a key
that a query does not see is left empty. Colours run over

    share     0 to 1; of attention up to the largest weight, rounded up to a tenth
    count     0 to the largest that occurs, rounded up
    cosine    −1 to 1
    tokens    0 to the largest distance

A figure is SVG in the style of `milepost.report.plots`, or, as a file, PDF or PNG with black ink on
white. Tokens are text of unknown origin, and stay text: white space is shown by a sign, what cannot
be printed by its number.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from milepost.errors import UsageError, unknown
from milepost.files import write_text, write_whole
from milepost.look.layer import check_finite
from milepost.look.shown import NAMES, Shown, shown
from milepost.look.subject import Subject
from milepost.report import heat
from milepost.report.plots import INK, plain, style, svg_text, themed
from milepost.tasks.task import is_whole

FORMATS = (".svg", ".pdf", ".png")
LARGEST = 128
"""Of more tokens a cell is too small to be seen."""

_NAMED = 64  # of more tokens the texts are too small to be read
_PANEL = 2.4  # inches at least
_UNNAMED_PANEL = 4.0
_LINE = 0.1  # inches that a token's text needs
_LETTER = 0.05  # and each of its letters
_LETTERS = 12  # of a token
_NUMBERED = 16  # where tokens are not named
_TITLE = 64  # letters of a subject's
_SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥"}
_STYLE: dict[Any, Any] = {
    "text.parse_math": False,  # no token is a formula
    "pdf.fonttype": 42,  # of embedded fonts the only ones that many journals take
    "savefig.bbox": "tight",
    "savefig.pad_inches": 0.05,
    "axes.labelsize": 8,
    "ytick.labelsize": 7,
}
_RECTANGLE = re.compile(r"M (\S+) (\S+) \nL (\S+) \2 \nL \3 (\S+) \nL \1 \4 \nL \1 \2 \n(?:z\n)?")
_GROUP = re.compile(r"<g>((?:(?!<g\b).)*?)</g>", re.DOTALL)
_TEXT = re.compile(r"(?<=>)[^<>]*(?=</text>)")


def draw(
    subject: Subject, names: Sequence[str], layer: int, head: int, *, last: int | None = None
) -> str:
    """The figure as an `<svg>` element in a page's own colours, one panel for each name.

    Args:
        subject: the model and its text.
        names: of `milepost.look.shown.NAMES`, such as "gates" and "attention".
        layer: from 0 on.
        head: from 0 on.
        last: show the last so many tokens alone, as queries and as keys; all if None.

    Raises:
        UsageError: there is no such layer, head or array, a number is not finite, the tokens are
            too many to be drawn legibly, or matplotlib is missing.
    """
    with _style(), warnings.catch_warnings():
        # the reader's fonts may have what ours lacks
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        svg = svg_text(_figure(subject, names, layer, head, last))
    label = f"{'-'.join(names)}-layer-{layer}-head-{head}"
    return _apart_from_texts(svg, lambda svg: themed(_lean(svg), label))


def save(
    path: Path,
    subject: Subject,
    names: Sequence[str],
    layer: int,
    head: int,
    *,
    last: int | None = None,
) -> None:
    """Write the figure of `draw` to a file, in the format that its name ends in: `FORMATS`.

    Raises:
        UsageError: as `draw`, or the name ends otherwise, or the file cannot be written.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise UsageError(
            f"path must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, got {str(path)!r}: name "
            f"the file for the format that it is to have"
        )
    if suffix == ".svg":
        svg = draw(subject, names, layer, head, last=last)
        write_text(path, _apart_from_texts(svg, plain))
        return
    with _style():
        figure = _figure(subject, names, layer, head, last)
        unsaid = ("CreationDate", "Creator", "Producer") if suffix == ".pdf" else ("Software",)
        write_whole(
            path,
            lambda file: figure.savefig(
                file,
                format=suffix[1:],
                dpi=300,
                facecolor="white",
                metadata=dict.fromkeys(unsaid),
            ),
        )


def visible(token: str) -> str:
    """A token's text, its white space shown by signs, cut off where it is long."""
    text = "".join(_SIGNS.get(sign) or printable(sign) for sign in token)
    return _cut(text, _LETTERS)


def printable(text: str) -> str:
    r"""What cannot be printed, or changes what is, is shown by its number: \x1b."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )


@contextmanager
def _style() -> Iterator[None]:
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError(
            "figures need matplotlib, which is not installed: pip install 'milepost[plot]'"
        ) from error
    with style(), matplotlib.rc_context(_STYLE):
        yield


def _figure(subject: Subject, names: Sequence[str], layer: int, head: int, last: int | None) -> Any:
    count = _count(subject, names, layer, head, last)
    check_finite(subject.trace.layers[layer], f"layer {layer} of {printable(subject.title)}")
    arrays = shown(subject.trace)[layer]
    seen = subject.trace.layers[layer].seen
    seen = seen.expand(len(subject.trace.layers[layer].output), -1, -1)[head]
    tokens = [visible(text) for text in subject.texts[-count:]]
    size = _UNNAMED_PANEL
    if count <= _NAMED:
        size = max(_PANEL, _LINE * count + _LETTER * max(map(len, tokens)) + 0.6)
    figure, panels = heat.panels(len(names), size=size, columns=len(names))
    title = f"{_cut(printable(subject.title), _TITLE)}: layer {layer}, head {head}"
    figure.set_layout_engine("compressed")
    figure.set_figheight(size + 0.4)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold", color=INK)
    first = len(subject.texts) - count
    for axes, name in zip(panels, names, strict=True):
        array = arrays[name].make()[head].masked_fill(~seen, math.nan)
        grid = array[-count:, -count:].tolist()
        low, high = _ends(name, arrays[name], grid)
        heat.image(axes, grid, low, high)
        heat.scale(figure, [axes], arrays[name].unit, low, high)
        axes.set_title(
            f"{arrays[name].title}\n{_formula(arrays[name].symbol)}", fontsize=8, parse_math=True
        )
        if count <= _NAMED:
            axes.set_xticks(range(count), tokens, fontsize=6, rotation=90)
            axes.set_yticks(range(count), tokens if axes is panels[0] else [""] * count, fontsize=6)
            axes.tick_params(length=0, pad=1)
        else:
            ticks = range(-first % _NUMBERED, count, _NUMBERED)
            axes.set_xticks(ticks, [str(first + tick) for tick in ticks])
            axes.set_yticks(ticks, [str(first + tick) for tick in ticks])
        axes.set_xlabel("key")
    panels[0].set_ylabel("query")
    return figure


def _count(subject: Subject, names: Sequence[str], layer: int, head: int, last: int | None) -> int:
    """How many tokens are to be drawn, or the `UsageError` of `draw`."""
    layers = shown(subject.trace)
    _within("layer", layer, len(layers), "layers")
    _within("head", head, len(subject.trace.layers[layer].output), "heads")
    if not names:
        raise UsageError(
            f"names must have one array at least, got none: name some of {', '.join(layers[layer])}"
        )
    for name in names:
        if name not in NAMES:
            raise unknown("array", name, NAMES)
        if name not in layers[layer]:
            raise UsageError(
                f"names must be of arrays that the layer has, got {name!r} for layer {layer} of "
                f"{printable(subject.title)}: name some of {', '.join(layers[layer])}"
            )
    if last is not None and not is_whole(last, 1):
        raise UsageError(f"last must be a whole number of tokens above 0, got {last!r}")
    count = len(subject.texts) if last is None else min(last, len(subject.texts))
    if count > LARGEST:
        raise UsageError(
            f"tokens must be at most {LARGEST} to be drawn legibly, got {count}: show the last of "
            f"them alone, with last={LARGEST} (--last {LARGEST})"
        )
    return count


def _ends(name: str, array: Shown, grid: Sequence[Sequence[float]]) -> tuple[float, float]:
    """What the colours run from and to."""
    if array.unit == "cosine":
        return -1, 1
    if array.unit == "share" and name != "attention":
        return 0, 1
    largest = max((value for line in grid for value in line if math.isfinite(value)), default=0)
    if array.unit == "share":
        return 0, min(10, max(1, math.ceil(10 * largest))) / 10
    return 0, max(1, math.ceil(largest))


def _within(what: str, number: int, count: int, many: str) -> None:
    if not is_whole(number, 0) or number >= count:
        raise UsageError(
            f"{what} must be a whole number from 0 to {count - 1}, got {number!r}: the model has "
            f"{count} {many}"
        )


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _formula(symbol: str) -> str:
    """A symbol of `Shown` in TeX: indices below, functions upright."""
    symbol = re.sub("_([ijk]+)", r"_{\1}", symbol.replace("⁰", "^0"))
    symbol = re.sub("(exp|max|min)", r"\\\1", symbol)
    return f"${symbol.replace(' ', chr(92) + ' ')}$"


def _lean(svg: str) -> str:
    """The same drawing in half as many bytes.

    Hundredths of a point are as fine as can be seen, a rectangle has two corners, nothing is drawn
    beyond its panel, and no one asks for a group by its name.
    """
    svg = re.sub(r"(\.\d\d)\d+", r"\1", svg)
    svg = _RECTANGLE.sub(r"M\1 \2H\3V\4H\1z", svg)
    svg = re.sub(r' clip-path="[^"]*"| transform="rotate\(-0 [^"]*"', "", svg)
    svg = re.sub(r"<defs>\s*<clipPath.*?</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg).replace("<g/>", "")
    groups = 1
    while groups:
        svg, groups = _GROUP.subn(r"\1", svg)
    return re.sub(r"\n\s+", "\n", svg)


def _apart_from_texts(svg: str, change: Callable[[str], str]) -> str:
    """The drawing changed, its texts left as they are: a token may be a colour, or `id="`."""
    texts = iter(_TEXT.findall(svg))
    return _TEXT.sub(lambda _: next(texts), change(_TEXT.sub("", svg)))
