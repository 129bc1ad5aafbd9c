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
from milepost.look.layer import Layer
from milepost.look.shown import Shown, shown
from milepost.look.subject import Subject
from milepost.wording import counted as numbered

SMALL = 64
"""Pixels of a small picture, each way."""


def write(
    subjects: Sequence[Subject], path: Path, progress: Callable[[int, int], None] = lambda *_: None
) -> None:
    """Write the page of one model and text, or of several to choose from, whole or not at all.

    Args:
        subjects: what to show.
        path: of the HTML file.
        progress: told how many layers are done, and of how many, after each.

    Raises:
        UsageError: there is nothing to show, or the file cannot be written.
    """
    write_text(path, page(subjects, progress))


def page(
    subjects: Sequence[Subject], progress: Callable[[int, int], None] = lambda *_: None
) -> str:
    """The page, as HTML.

    Raises:
        UsageError: there is nothing to show.
    """
    if not subjects:
        raise UsageError("subjects must be at least one, got none: give a model and a text")
    count, done = sum(len(subject.trace.layers) for subject in subjects), 0
    summaries: list[dict[str, Any]] = []
    blocks: list[str] = []
    for number, subject in enumerate(subjects):
        layers = []
        for at, arrays in enumerate(shown(subject.trace)):
            summary, data = _layer(subject, subject.trace.layers[at], arrays, f"{number}-{at}")
            layers.append(summary)
            blocks += data
            done += 1
            progress(done, count)
        summaries.append({**_summary(subject), "layers": layers})
    # a < would end the block where the text of a token says </script>
    text = json.dumps(summaries, allow_nan=False).replace("<", "\\u003c")
    title = f"{subjects[0].title} – Milepost".encode(errors="backslashreplace").decode()
    script = _resource("page.js")
    return Template(_resource("page.html")).substitute(
        title=html.escape(title),
        style=_resource("page.css"),
        script=script,
        script_hash=f"sha256-{base64.b64encode(sha256(script.encode()).digest()).decode()}",
        subjects=text,
        data="\n".join(blocks),
    )


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


def _layer(
    subject: Subject, layer: Layer, arrays: Mapping[str, Shown], identity: str
) -> tuple[dict[str, Any], list[str]]:
    """What the page knows of a layer, and a block of text for each array of each head.

    A block is called identity-head-name. Arrays are made one after another, each once.
    """
    codes, remainder = pack.codes(arrays), layer.remainder
    described: dict[str, Any] = {}
    blocks: list[str] = []
    summary: dict[str, Any] = {
        "from": layer.visible[0].int().argmax(-1).tolist(),
        "itself": bool(layer.visible[0].diagonal().any()),
        "remainder": None if remainder is None else _rounded(remainder),
        "moved": None,
        "arrays": described,
    }
    for name, shown_ in arrays.items():
        array, code = shown_.make(), codes[name]
        described[name] = {
            "title": shown_.title,
            "symbol": shown_.symbol,
            "unit": shown_.unit,
            "largest": shown_.largest,
            "code": code.name,
            "levels": code.levels,
            "small": pack.text_of(_small(name, shown_.unit, array)),
        }
        if name == counts_by(layer, arrays):
            summary["counted"] = _counted(of_layer(layer, arrays, subject.classes, array))
        if name == "gates" and arrays["positions"].unit == "cosine":
            summary["moved"] = _rounded(array.diagonal(dim1=1, dim2=2))
        if code not in (pack.DISTANCE, pack.SUMS):
            for head, of_head in enumerate(array):
                text = pack.packed(of_head, code)
                blocks.append(
                    f'<script type="text/plain" id="{identity}-{head}-{name}">{text}</script>'
                )
    return summary, blocks


def _counted(counts: Counted) -> dict[str, Any]:
    return {
        "of": counts.of,
        "meaning": counts.meaning,
        "amount": _rounded(counts.amount),
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
    return files("milepost.look").joinpath(name).read_text(encoding="utf-8")
