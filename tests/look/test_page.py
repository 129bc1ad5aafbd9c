"""The page as a file: its arrays are the trace's, and the texts of tokens stay text."""

import base64
import math
import zlib
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

from milepost import encoding
from milepost.errors import UsageError
from milepost.look import Subject, counted, of_text, page, shown, trace, write
from milepost.model import Config, Decoder

from .tiny import VOCABULARY, drawn, every_encoding, make, subject
from .unpacked import Parsed, counts, precision, unpacked

TEXTS = "I saw 3 cats. \nTwo"


def check(parsed: Parsed, subjects: Sequence[Subject]) -> None:
    """Every array of the page is that of the trace."""
    expected = set()
    for number, (given, about) in enumerate(zip(subjects, parsed.subjects, strict=True)):
        for at, arrays in enumerate(shown(given.trace)):
            described = about["layers"][at]["arrays"]
            assert [*described] == [*arrays]
            for name, array in arrays.items():
                code = described[name]["code"]
                for head, values in enumerate(array.make().double()):
                    block = f"{number}-{at}-{head}-{name}"
                    if code not in ("sums", "distance"):
                        expected.add(block)
                        found = unpacked(parsed.blocks[block], code, described[name]["levels"])
                        allowed = precision(values, code, described[name]["levels"])
                        assert ((found - values).abs().tril() <= allowed).all(), block
                    if code == "sums":
                        gates = unpacked(parsed.blocks[f"{number}-{at}-{head}-gates"], "counted")
                        largest = described[name]["largest"]
                        found = counts(gates).clamp(max=math.inf if largest is None else largest)
                        seen = given.trace.layers[at].visible[0]
                        assert ((found - values)[seen].abs() <= 1 / 510 + 1e-5).all(), block
                    if code == "distance":
                        i, j = values.nonzero().T
                        assert torch.equal(values[i, j], (i - j).double())
    assert parsed.blocks.keys() == expected


@every_encoding
def test_the_arrays_of_a_page_are_those_of_the_trace(name: str, options: dict[str, Any]) -> None:
    given = subject(name, options, layers=2)
    check(Parsed(page([given])), [given])


@pytest.mark.parametrize("name", ["cope", "cope-alibi", "fox", "stick-breaking", "tape", "alibi"])
def test_a_window_leaves_out_what_is_older(name: str) -> None:
    given = subject(name, window=5)
    parsed = Parsed(page([given]))
    check(parsed, [given])
    for layer in parsed.subjects[0]["layers"]:
        first = [max(0, i - 4) for i in range(18)]
        assert layer["from"][1:] == first[1:]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("cope", {"key_heads": 4}),
        ("tape", {"key_heads": 1}),
        ("rope", {"hard_attention": True}),
        ("tape", {"hard_attention": True}),
    ],
)
def test_other_kinds_of_models(name: str, settings: dict[str, Any]) -> None:
    given = subject(name, **settings)
    check(Parsed(page([given])), [given])


@pytest.mark.parametrize("name", ["cope", "fox", "tape", "alibi", "stick-breaking"])
def test_models_of_low_precision(name: str) -> None:
    given = of_text("half", make(name).bfloat16(), drawn(), TEXTS)
    check(Parsed(page([given])), [given])


@pytest.mark.parametrize("name", encoding.names())
@pytest.mark.parametrize("texts", ["a", "ab"])
def test_the_shortest_texts(name: str, texts: str) -> None:
    given = subject(name, texts=texts, layers=1)
    parsed = Parsed(page([given]))
    check(parsed, [given])
    assert parsed.subjects[0]["small"] == len(texts)


def test_a_subject_is_described() -> None:
    (about,) = Parsed(page([subject("cope", layers=1)])).subjects
    assert about["title"] == "cope"
    assert about["about"] == "18 tokens, 1 layer of 4 heads"
    assert about["texts"] == [*TEXTS]
    assert about["classes"] == ["letter", "space", "digit", "sentence end", "newline"]


def test_arrays_are_described() -> None:
    given = subject("cope", {"p_max": 3})
    (about,) = Parsed(page([given])).subjects
    for arrays, layer in zip(shown(given.trace), about["layers"], strict=True):
        for name, array in arrays.items():
            described = layer["arrays"][name]
            assert described["title"] == array.title
            assert described["symbol"] == array.symbol
            assert described["unit"] == array.unit
            assert described["largest"] == (3 if name == "positions" else None)


def rounded(numbers: torch.Tensor) -> Any:
    """To six digits."""
    return pytest.approx(numbers.flatten().tolist(), rel=5.1e-6)


def flat(numbers: Any) -> list[float]:
    return torch.tensor(numbers, dtype=torch.float64).flatten().tolist()


@pytest.mark.parametrize("name", encoding.names())
def test_what_heads_count_and_leave_and_how_places_move(name: str) -> None:
    given = subject(name)
    (about,) = Parsed(page([given])).subjects
    for at, found in enumerate(counted(given)):
        layer, summary = given.trace.layers[at], about["layers"][at]
        assert summary["counted"]["of"] == found.of
        assert summary["counted"]["meaning"] == found.meaning
        for part in ("amount", "selectivity", "falls", "pairs"):
            assert flat(summary["counted"][part]) == rounded(getattr(found, part))
        assert summary["itself"] == (not name.startswith("stick-breaking"))
        assert summary["from"] == [0] * 18
        assert (summary["remainder"] is None) == (layer.remainder is None)
        if layer.remainder is not None:
            assert flat(summary["remainder"]) == rounded(layer.remainder)
        assert (summary["moved"] is None) == (name != "tape")
        if name == "tape":
            moved = torch.tensor(summary["moved"], dtype=torch.float64)
            last = shown(given.trace)[at]["gates"].make()[:, -1]
            assert moved.clamp(max=1).flatten().tolist() == rounded(last)
            assert (moved > 0).any() == (at > 0)


def small(parsed: Parsed, layer: int, name: str) -> torch.Tensor:
    (about,) = parsed.subjects
    read = [*zlib.decompress(base64.b64decode(about["layers"][layer]["arrays"][name]["small"]))]
    return torch.tensor(read).view(-1, about["small"], about["small"])


def test_the_small_pictures_of_a_short_text_have_a_pixel_for_each_pair() -> None:
    given = subject("cope")
    arrays, parsed = shown(given.trace)[1], Parsed(page([given]))
    gates, attention = arrays["gates"].make(), arrays["attention"].make().sqrt()
    positions = arrays["positions"].make()
    for name, expected in (
        ("gates", gates),
        ("attention", attention / attention.max()),
        ("positions", positions / positions.max()),
    ):
        assert ((small(parsed, 1, name) - 255 * expected).abs() < 0.501).all()


def test_the_small_pictures_of_a_long_text_are_means() -> None:
    model = make("fox", layers=1, max_length=150)
    given = of_text("fox", model, torch.randint(VOCABULARY, (128,)), "x" * 128)
    gates = shown(given.trace)[0]["gates"].make()
    means = gates.unflatten(2, (64, 2)).unflatten(1, (64, 2)).mean((2, 4))
    found = small(Parsed(page([given])), 0, "gates")
    assert ((found - 255 * means).abs() < 0.501).all()


def test_layers_may_have_different_arrays() -> None:
    given = subject("cope", {"first_layer_only": True})
    parsed = Parsed(page([given]))
    check(parsed, [given])
    (about,) = parsed.subjects
    assert [len(layer["arrays"]) for layer in about["layers"]] == [4, 2, 2]
    assert [layer["counted"]["of"] for layer in about["layers"]] == ["gates"] + ["attention"] * 2


def test_several_subjects_stand_in_one_page() -> None:
    given = [subject("cope"), subject("rope", layers=1), subject("tape", texts="ab")]
    parsed = Parsed(page(given))
    check(parsed, given)
    assert [about["title"] for about in parsed.subjects] == ["cope", "rope", "tape"]
    assert [text for _, text in parsed.of("title")] == ["cope – Milepost"]


UNTRUSTED = [
    "<script>alert(1)</script>",
    "</script>",
    "</SCRIPT >",
    "<!--",
    "<!--<script>",
    "-->",
    "]]>",
    "$title",
    "${x}",
    "$$",
    '"',
    "'",
    "\\",
    "\\u003c",
    "&lt;&amp;",
    "\u2028\u2029",
    "\x00\x1b[31m\x7f",
    "\ud800",
    "\r\n",
    "\u202egnp",
    "né 漢 🙂",
    "",
]


def hostile() -> Subject:
    model = make("cope", layers=1, max_length=40)
    tokens = torch.randint(VOCABULARY, (len(UNTRUSTED),))
    return of_text("</title><script>alert(1)</script>&amp;$title\ud800", model, tokens, UNTRUSTED)


def test_whatever_a_token_is_stays_text(tmp_path: Path) -> None:
    given = hostile()
    write([given], tmp_path / "look.html")
    parsed = Parsed((tmp_path / "look.html").read_text(encoding="utf-8"))
    (about,) = parsed.subjects
    assert about["texts"] == UNTRUSTED
    assert about["title"] == given.title
    assert len(parsed.of("script")) == len(parsed.blocks) + 2
    check(parsed, [given])
    ((_, title),) = parsed.of("title")
    assert title == r"</title><script>alert(1)</script>&amp;$title\ud800 – Milepost"
    assert not [given for _, given in parsed.elements if any(n.startswith("on") for n in given)]


def test_the_block_of_texts_ends_where_it_should() -> None:
    html = page([hostile()])
    begin = html.index('id="subjects">')
    assert "<" not in html[begin : html.index("</script>", begin)]


def test_no_script_but_ours_may_run_and_nothing_is_asked_of_a_network() -> None:
    parsed = Parsed(page([subject("cope", layers=1)]))
    (script,) = [text for given, text in parsed.of("script") if not given]
    parts = files("milepost.look").joinpath("web").iterdir()
    written = [part.read_text(encoding="utf-8") for part in parts if part.name.endswith(".js")]
    assert all(part in script for part in written)
    assert len(script) == sum(map(len, written)) + len(written) - 1
    digest = base64.b64encode(sha256(script.encode()).digest()).decode()
    assert parsed.policy.split("; ") == [
        "default-src 'none'",
        "img-src data:",
        "style-src 'unsafe-inline'",
        f"script-src 'sha256-{digest}'",
    ]
    for _, given in parsed.elements:
        assert "src" not in given
        assert (given.get("href") or "data:").startswith("data:")


def test_nothing_is_left_of_the_template() -> None:
    html = page([subject("alibi", layers=1)])
    (script,) = [text for given, text in Parsed(html).of("script") if not given]
    assert "$" not in html.replace(script, "")
    assert html.startswith("<!doctype html>")


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_model_that_is_broken_is_told_of(number: float, tmp_path: Path) -> None:
    model = make("cope", {})
    with torch.no_grad():
        model.blocks[1].attention.query.weight[0, 0] = number
    given = of_text("cope", model, drawn(), ["a"] * len(drawn()))
    with pytest.raises(
        UsageError, match="query of layer 1 of cope must be finite to be shown, got"
    ):
        write([given], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_the_same_subject_gives_the_same_page() -> None:
    assert page([subject("tape")]) == page([subject("tape")])


def test_progress_is_told_after_each_layer(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    given = [subject("cope", layers=2), subject("rope", layers=3)]
    write(given, tmp_path / "look.html", lambda done, count: told.append((done, count)))
    assert told == [(n, 5) for n in range(1, 6)]


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    def stop(done: int, count: int) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "new" / "look.html"
    write([subject("none", layers=1)], path)
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        write([subject("cope", layers=1)], path, stop)
    assert path.read_bytes() == before
    (tmp_path / "folder.html").mkdir()
    for wrong in (tmp_path / "folder.html", path / "look.html"):
        with pytest.raises(UsageError, match=f"cannot write {wrong}: .*; "):
            write([subject("none", layers=1)], wrong)
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["folder.html", "look.html", "new"]


def test_nothing_to_show_is_refused() -> None:
    with pytest.raises(UsageError, match="subjects must be at least one, got none: give a model"):
        page([])


def test_a_page_of_512_tokens_is_small() -> None:
    torch.manual_seed(0)
    size = {"dim": 256, "layers": 4, "heads": 4, "max_length": 512}
    model = Decoder(Config(256, encoding="cope", **size)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.08 * torch.randn_like(parameter))
    tokens = torch.randint(256, (512,))
    given = Subject("cope", trace(model, tokens), ("x",) * 512, {"x": torch.ones(512).bool()})
    assert 1e6 < len(page([given]).encode()) < 6e6
