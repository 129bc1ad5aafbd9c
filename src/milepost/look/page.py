"""One HTML file that shows what each head of a model does with a text.

It needs no server and asks nothing of a network: the style, the script and the numbers stand in it,
and its content security policy lets that script run and no other. The text of the tokens goes in as
JSON and comes out as text, whatever it says.

What is small stands in one JSON: the tokens, what each head counts, a small picture of each of its
arrays. The arrays themselves are text that is unpacked when a head is chosen
(`milepost.look.pack`).
"""

import base64
import html
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional as F

from milepost.errors import UsageError
from milepost.files import write_text
from milepost.look import pack
from milepost.look.counted import Counted, counts_by, of_layer
from milepost.look.layer import check_finite
from milepost.look.shown import Shown, movement, shown
from milepost.look.subject import Subject
from milepost.wording import counted as numbered

SCRIPTS = [f"{part}.js" for part in ("arrays", "state", "words", "text", "heads", "heat", "frame")]
"""Of the page, in the order in which they build on each other."""

SMALL = 64
"""Pixels of a small picture, each way."""


@dataclass(frozen=True)
class _Layer:
    """What the page knows of a layer, and a block of text for each array of each of its heads.

    A block is called subject-layer-head-name.
    """

    summary: dict[str, Any]
    blocks: list[str]
    counted: Counted


def write(
    subjects: Sequence[Subject], path: Path, progress: Callable[[int, int], None] = lambda *_: None
) -> list[tuple[Counted, ...]]:
    """Write the page of one model and text, or of several to choose from, whole or not at all.

    Args:
        subjects: what to show.
        path: of the HTML file.
        progress: told how many layers are done, and of how many, after each.

    Returns:
        What the heads of each layer count, of each subject, which the page has too.

    Raises:
        UsageError: as `page`, or the file cannot be written.
    """
    text, counts = _built(subjects, progress)
    write_text(path, text)
    return counts


def page(subjects: Sequence[Subject]) -> str:
    """The page, as HTML.

    Raises:
        UsageError: there is nothing to show, or a number that is to be shown is not finite.
    """
    return _built(subjects, lambda *_: None)[0]


def _built(
    subjects: Sequence[Subject], progress: Callable[[int, int], None]
) -> tuple[str, list[tuple[Counted, ...]]]:
    if not subjects:
        raise UsageError("subjects must be at least one, got none: give a model and a text")
    count, done = sum(len(subject.trace.layers) for subject in subjects), 0
    summaries: list[dict[str, Any]] = []
    blocks: list[str] = []
    counts: list[tuple[Counted, ...]] = []
    for number, subject in enumerate(subjects):
        layers: list[_Layer] = []
        for at, arrays in enumerate(shown(subject.trace)):
            check_finite(subject.trace.layers[at], f"layer {at} of {subject.title}")
            layers.append(_layer(subject, at, arrays, f"{number}-{at}"))
            blocks += layers[-1].blocks
            done += 1
            progress(done, count)
        counts.append(tuple(layer.counted for layer in layers))
        summaries.append({**_summary(subject), "layers": [layer.summary for layer in layers]})
    # a < would end the block where the text of a token says </script>
    text = json.dumps(summaries, allow_nan=False).replace("<", "\\u003c")
    title = f"{subjects[0].title} – Milepost".encode(errors="backslashreplace").decode()
    script = "\n".join(map(_resource, SCRIPTS))
    html_text = Template(_resource("page.html")).substitute(
        title=html.escape(title),
        style=_resource("page.css"),
        script=script,
        script_hash=f"sha256-{base64.b64encode(sha256(script.encode()).digest()).decode()}",
        subjects=text,
        data="\n".join(blocks),
    )
    return html_text, counts


def _summary(subject: Subject) -> dict[str, Any]:
    """What the page knows of a model, but for its layers."""
    layers = subject.trace.layers
    heads = max(layer.operands["query"].shape[1] for layer in layers)
    return {
        "title": subject.title,
        "about": f"{numbered(len(subject.texts), 'token')}, {numbered(len(layers), 'layer')} of "
        f"{numbered(heads, 'head')}",
        "texts": subject.texts,
        "classes": [*subject.classes],
        "small": min(SMALL, len(subject.texts)),
    }


def _layer(subject: Subject, at: int, arrays: Mapping[str, Shown], identity: str) -> _Layer:
    """What the page knows of a layer. Arrays are made one after another, each once."""
    layer, codes = subject.trace.layers[at], pack.codes(arrays)
    described: dict[str, Any] = {}
    blocks: list[str] = []
    counts: Counted | None = None
    for name, one in arrays.items():
        array, code = one.make(), codes[name]
        described[name] = {
            "title": one.title,
            "symbol": one.symbol,
            "unit": one.unit,
            "largest": one.largest,
            "code": code.name,
            "levels": code.levels,
            "small": pack.text_of(_small(name, one.unit, array)),
        }
        if name == counts_by(layer, arrays):
            counts = of_layer(layer, arrays, subject.classes, array)
        if code not in (pack.DISTANCE, pack.SUMS):
            for head, of_head in enumerate(array):
                text = pack.packed(of_head, code)
                blocks.append(
                    f'<script type="text/plain" id="{identity}-{head}-{name}">{text}</script>'
                )
    assert counts is not None, "every layer has attention at least"
    remainder, moves = layer.remainder, arrays["positions"].unit == "cosine" and "gates" in arrays
    summary = {
        "from": layer.visible[0].int().argmax(-1).tolist(),
        "itself": bool(layer.visible[0].diagonal().any()),
        "remainder": None if remainder is None else _rounded(remainder),
        "moved": _rounded(movement(layer, subject.trace.layers[0])) if moves else None,
        "arrays": described,
        "counted": _counted(counts),
    }
    return _Layer(summary, blocks, counts)


def _counted(counts: Counted) -> dict[str, Any]:
    return {
        "of": counts.of,
        "meaning": counts.meaning,
        "amount": _rounded(counts.amount),
        "selectivity": _rounded(counts.selectivity),
        "falls": _rounded(counts.falls),
        "pairs": _rounded(counts.pairs),
    }


def _small(name: str, unit: str, array: Float[Tensor, "H S S"]) -> UInt8[Tensor, "H X X"]:
    """Every head's array as a small picture.

    Gates and shares are as they are; all else reaches up to the layer's largest number, and of
    attention it is the root.
    """
    values = array.float().clamp(min=0)
    weights = name in ("attention", "alone")
    if weights:
        values = values.sqrt()
    pooled = F.adaptive_avg_pool2d(values[None], min(SMALL, values.shape[-1]))[0]
    if weights or unit != "share":
        pooled = pooled / pooled.amax().clamp(min=1e-9)
    return pack.levels(pooled, pack.Code("linear"))


def _rounded(numbers: Tensor) -> Any:
    """As lists, to six digits."""
    if numbers.ndim:
        return [_rounded(each) for each in numbers]
    return float(f"{numbers.item():.6g}")


def _resource(name: str) -> str:
    return files("milepost.look").joinpath("web", name).read_text(encoding="utf-8")
