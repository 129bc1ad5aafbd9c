"""Figures of a head show its arrays, cell by cell, and a text's tokens as text."""

import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

pytest.importorskip("matplotlib")

from matplotlib import colormaps
from matplotlib.colors import to_hex

from milepost import encoding
from milepost.errors import UsageError
from milepost.look.shown import shown
from milepost.look.subject import Subject, of_text
from milepost.model import Config, Decoder
from milepost.report import heads, heat

TEXTS = ("a", "b", "c", "d", "e", "f", "g")
RECTANGLE = re.compile(r"M(\S+) (\S+)H(\S+)V(\S+)H\1z")
SVG = "{http://www.w3.org/2000/svg}"


def subject(name: str = "cope", texts: Sequence[str] = TEXTS, **settings: Any) -> Subject:
    torch.manual_seed(1)
    size = {"vocab_size": 160, "dim": 16, "layers": 2, "heads": 2, "max_length": 160, **settings}
    model = Decoder(Config(**size, encoding=name)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return of_text(f"{name}, letters", model, torch.arange(len(texts)), texts)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def cells(svg: str, panel: int, count: int) -> dict[tuple[int, int], str]:
    """The colour of each cell of a panel, by query and key."""
    found: dict[tuple[int, int], str] = {}
    edges = 0.0, 0.0, 0.0, 0.0
    number = -2  # before the panels comes the figure itself, after them all scales
    for path in ElementTree.fromstring(svg).iter(f"{SVG}path"):
        boxes = [tuple(map(float, box)) for box in RECTANGLE.findall(path.get("d") or "")]
        fill = re.search(r"fill: (\S+?)(;|$)", path.get("style") or "")
        if not boxes or fill is None:
            continue
        if fill[1] == "none":
            (edges,) = boxes
            number += 1
        elif number == panel:
            left, low, right, top = edges
            side = (right - left) / count
            for x, y, end, bottom in boxes:
                query = (min(y, bottom) - min(top, low)) / side
                for key in range(round((x - left) / side), round((end - left) / side)):
                    assert (round(query), key) not in found
                    found[round(query), key] = fill[1]
    return found


def colour(value: float, low: float, high: float) -> str:
    return to_hex(colormaps[heat.HEAT](heat.level(value, low, high) / (heat.LEVELS - 1)))


@pytest.mark.parametrize("name", encoding.names())
def test_every_encoding_s_arrays_are_drawn_cell_by_cell(name: str) -> None:
    given = subject(name)
    arrays = shown(given.trace)[1]
    svg = heads.draw(given, list(arrays), 1, 0)
    assert f"{name}, letters: layer 1, head 0" in texts(svg)
    seen = given.trace.layers[1].seen.expand(2, -1, -1)[0]
    for panel, (kind, array) in enumerate(arrays.items()):
        assert array.title in texts(svg)
        assert array.unit in texts(svg)
        values = array.make()[0]
        low, high = {
            "share": (0.0, 1.0),
            "cosine": (-1.0, 1.0),
            "count": (0.0, float(max(1, math.ceil(values[seen].max())))),
            "tokens": (0.0, 6.0),
        }[array.unit]
        if kind == "attention":
            high = math.ceil(10 * float(values.max())) / 10
        expected = {
            (query, key): colour(float(values[query, key]), low, high)
            for query, key in seen.nonzero().tolist()
        }
        assert cells(svg, panel, len(TEXTS)) == expected, kind


def test_the_scale_of_attention_ends_at_the_largest_weight_that_is_drawn() -> None:
    given = subject("alibi", [str(number) for number in range(20)])
    weights = given.trace.layers[1].weights[0, -4:, -4:]
    high = math.ceil(10 * float(weights.max())) / 10
    assert high < 0.9
    found = cells(heads.draw(given, ["attention"], 1, 0, last=4), 0, 4)
    assert found == {
        (query, key): colour(float(weights[query, key]), 0, high)
        for query in range(4)
        for key in range(query + 1)
    }


def test_the_last_tokens_alone_are_shown_on_request() -> None:
    given = subject()
    svg = heads.draw(given, ["gates"], 0, 0, last=3)
    assert [text for text in texts(svg) if text in TEXTS] == ["e", "f", "g"] * 2
    gates = given.trace.layers[0].gates
    assert gates is not None
    assert cells(svg, 0, 3) == {
        (query, key): colour(float(gates[0, 4 + query, 4 + key]), 0, 1)
        for query in range(3)
        for key in range(query + 1)
    }
    assert heads.draw(given, ["gates"], 0, 0, last=99) == heads.draw(given, ["gates"], 0, 0)


def test_tokens_stand_at_the_keys_of_each_panel_and_at_the_queries_of_the_first() -> None:
    svg = heads.draw(subject(), ["gates", "positions", "attention"], 0, 0)
    assert [text for text in texts(svg) if text in TEXTS] == [*TEXTS] * 4
    assert texts(svg).count("key") == 3
    assert texts(svg).count("query") == 1


def test_many_tokens_are_numbered_and_not_named() -> None:
    given = subject(texts=["x"] * 80)
    svg = heads.draw(given, ["attention"], 0, 0)
    assert "x" not in texts(svg)
    assert len(cells(svg, 0, 80)) == 80 * 81 // 2
    assert [text for text in texts(svg) if text.isdigit()] == ["0", "16", "32", "48", "64"] * 2
    svg = heads.draw(given, ["attention"], 0, 0, last=70)
    assert [text for text in texts(svg) if text.isdigit()] == ["16", "32", "48", "64"] * 2
    assert texts(heads.draw(given, ["attention"], 0, 0, last=64)).count("x") == 128


def test_keys_that_are_not_seen_are_left_empty() -> None:
    svg = heads.draw(subject(window=3), ["gates", "attention"], 0, 0)
    band = {(i, j) for i in range(7) for j in range(7) if 0 <= i - j < 3}
    assert set(cells(svg, 0, 7)) == set(cells(svg, 1, 7)) == band
    before = {(i, j) for i in range(7) for j in range(i)}
    assert set(cells(heads.draw(subject("stick-breaking"), ["gates"], 0, 0), 0, 7)) == before


ODD = {
    "<script>": "<script>",
    "]]>&amp;": "]]>&amp;",
    "$x$": "$x$",
    "$\\frac{": "$\\frac{",
    " the\n\t": "␣the⏎⇥",
    "\x00\x1b": r"\x00\x1b",
    "\ud800": r"\ud800",
    "\u202ex": r"\u202ex",
    '"#010101': '"#010101',
    'id="href="#': 'id="href="#',
    "currentColor": "currentColor",
    "var(--q, #a)": "var(--q,␣#a)",
    "0.123456": "0.123456",
    "<g/><g></g>": "<g/><g></g>",
    "中文": "中文",
    "extraordinarily": "extraordina…",
    "": "",
}


def test_whatever_a_token_is_stays_text(tmp_path: Path) -> None:
    given = subject(texts=list(ODD))
    given = Subject("<b>$x$\n#010101", given.trace, given.texts, given.classes)
    visible = [text for text in ODD.values() if text]
    heads.save(tmp_path / "figure.svg", given, ["attention"], 0, 0)
    for svg in (
        heads.draw(given, ["attention"], 0, 0),
        (tmp_path / "figure.svg").read_text(encoding="utf-8"),
    ):
        found = texts(svg)
        assert [text for text in found if text in visible] == visible * 2
        assert r"<b>$x$\n#010101: layer 0, head 0" in found


def test_the_same_head_gives_the_same_bytes() -> None:
    names = ["gates", "alone"]
    assert heads.draw(subject(), names, 1, 1) == heads.draw(subject(), names, 1, 1)


def test_a_page_gives_its_own_colours_and_a_file_has_whole_ones(tmp_path: Path) -> None:
    svg = heads.draw(subject(), ["attention"], 0, 0)
    assert "var(--quiet, #" in svg
    assert "currentColor" in svg
    path = tmp_path / "a/figure.svg"
    heads.save(path, subject(), ["attention"], 0, 0)
    kept = path.read_text(encoding="utf-8")
    assert "var(" not in kept
    assert "currentColor" not in kept
    assert cells(kept, 0, 7) == cells(svg, 0, 7)


@pytest.mark.parametrize(("suffix", "begins"), [(".pdf", b"%PDF"), (".PNG", b"\x89PNG")])
def test_the_name_of_a_file_says_its_format(suffix: str, begins: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"figure{suffix}"
    heads.save(path, subject(), ["gates", "attention"], 0, 0)
    assert path.read_bytes().startswith(begins)
    assert b"/Subtype /Type3" not in path.read_bytes()


def test_a_figure_that_cannot_be_drawn_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "figure.pdf"
    path.write_text("before")
    with pytest.raises(UsageError):
        heads.save(path, subject(), ["gates"], 2, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["figure.pdf"]
    assert path.read_text() == "before"
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        heads.save(tmp_path / "folder.svg", subject(), ["gates"], 0, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["gates"], 2, 0), "layer must be a whole number from 0 to 1, got 2: .* has 2 layers"),
        ((["gates"], -1, 0), "layer must be a whole number from 0 to 1, got -1"),
        ((["gates"], 0, 2), "head must be a whole number from 0 to 1, got 2: .* has 2 heads"),
        ((["gates"], 0, True), "head must be a whole number from 0 to 1, got True"),
        ((["gate"], 0, 0), "unknown array 'gate': did you mean 'gates'"),
        (([], 0, 0), "names must have one array at least, got none: name some of gates, positions"),
        ((["gates"], 0, 0, 0), "last must be a whole number of tokens above 0, got 0"),
        ((["gates"], 0, 0, 2.5), "last must be a whole number of tokens above 0, got 2.5"),
    ],
)
def test_a_mistake_is_named(arguments: tuple[Any, ...], message: str) -> None:
    names, layer, head, *last = arguments
    with pytest.raises(UsageError, match=message):
        heads.draw(subject(), names, layer, head, last=last[0] if last else None)


def test_an_array_that_the_encoding_lacks_is_refused_with_those_it_has() -> None:
    expected = "got 'gates' for layer 1 of rope, letters: name some of positions, attention$"
    with pytest.raises(UsageError, match=expected):
        heads.draw(subject("rope"), ["attention", "gates"], 1, 0)


def test_too_many_tokens_are_refused_with_the_number_that_can_be_drawn() -> None:
    given = subject(texts=["x"] * 129)
    message = "tokens must be at most 128 to be drawn legibly, got 129: .* last=128"
    with pytest.raises(UsageError, match=message):
        heads.draw(given, ["gates"], 0, 0)
    with pytest.raises(UsageError, match=message):
        heads.draw(given, ["gates"], 0, 0, last=500)


@pytest.mark.parametrize("path", ["figure", "figure.jpg", "svg"])
def test_another_format_is_refused(path: str, tmp_path: Path) -> None:
    message = r"path must end in \.svg, \.pdf or \.png, got .*: name the file for the format"
    with pytest.raises(UsageError, match=message):
        heads.save(tmp_path / path, subject(), ["gates"], 0, 0)
    assert not any(tmp_path.iterdir())


def test_a_long_title_still_says_which_head() -> None:
    given = subject()
    given = Subject("a prompt " * 20, given.trace, given.texts, given.classes)
    (title,) = [text for text in texts(heads.draw(given, ["gates"], 1, 0)) if "prompt" in text]
    assert title.endswith("…: layer 1, head 0")
    assert len(title) < 90


def test_a_missing_matplotlib_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"figures need matplotlib, .*: pip install"):
        heads.draw(subject(), ["gates"], 0, 0)
