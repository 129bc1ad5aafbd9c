"""The pages of docs/encodings say what the code does: options, costs, hooks, examples."""

import ast
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

from milepost import encoding
from milepost.look import read, trace
from milepost.model import Config, Decoder
from milepost.tasks.flip_flop import FlipFlop

FOLDER = Path(__file__).parents[1] / "docs" / "encodings"
IMAGES = FOLDER.parent / "images/encodings"
HOOKS = ("begin", "encode", "read", "carry")

every_encoding = pytest.mark.parametrize("name", encoding.names())


def page(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def section(name: str, title: str) -> str:
    """The text under a heading, up to the next one."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", page(name), re.MULTILINE | re.DOTALL)
    assert found, f"{name}.md has no section {title!r}"
    return found[1]


def fact(name: str, label: str) -> str:
    """What the cost section says under a bold label, up to the end of its first clause."""
    found = re.search(rf"^- \*\*{label}:\*\* (.*?)(?:[.;] |[.;]?$)", section(name, "Cost"), re.M)
    assert found, f"{name}.md states no {label.lower()}"
    return found[1]


def examples(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_there_is_a_page_for_each_encoding_and_no_other():
    assert {path.stem for path in FOLDER.glob("*.md")} == {*encoding.names(), "README"}


def test_the_index_has_one_line_for_each_encoding():
    linked = re.findall(r"^\| \[`(.+?)`\]\((.+?)\) \| .+ \|$", page("README"), re.MULTILINE)
    assert sorted(linked) == [(name, f"{name}.md") for name in encoding.names()]


def test_the_example_of_the_index_runs(capsys: pytest.CaptureFixture[str]):
    (code,) = examples(page("README"))
    exec(compile(code, "README.md", "exec"), {})
    assert str(encoding.names()) in capsys.readouterr().out


@every_encoding
def test_the_title_is_the_name(name: str):
    assert page(name).startswith(f"# `{name}`: ")


@every_encoding
def test_the_options_are_those_of_the_code(name: str):
    rows = re.findall(r"^\| `(\w+)` \| `(.+?)` \| .+ \|$", section(name, "Options"), re.MULTILINE)
    # By repr, since 1, 1.0 and True are equal
    stated = [(option, repr(ast.literal_eval(default))) for option, default in rows]
    assert stated == [(k, repr(v)) for k, v in encoding.options(name).items()]


@every_encoding
def test_the_parameters_are_as_many_as_stated(name: str):
    number = re.match(r"[\d,]+", fact(name, "Parameters"))
    assert number
    assert int(number[0].strip(",").replace(",", "")) == encoding.describe(name)["parameters"]


@pytest.mark.parametrize(
    ("name", "options", "more"),
    [
        ("cope", {"sep_keys": True}, ("adds dim² a layer", 12 * 768**2)),
        ("cope-alibi", {"slopes": "learned"}, ("144", 144)),
        ("fire", {"shared": True}, ("450", 450 - 12 * 450)),
        ("randomized", {"over": "absolute"}, ("L · dim", 4 * 1024 * 768)),
        ("stick-breaking", {"remainder": "bias"}, ("adds 3 · H · D a layer", 12 * 3 * 768)),
        ("tape", {"variant": "released"}, ("418,308", 418_308 - 430_848)),
        ("tape", {"equivariant": False}, ("456,192", 456_192 - 430_848)),
        ("tape", {"form": "vector"}, ("418,176", 418_176 - 430_848)),
        ("cope+randomized", {"over": "absolute"}, ("L · dim", 4 * 1024 * 768)),
    ],
)
def test_options_cost_what_the_page_says(name: str, options: dict[str, Any], more: tuple[str, int]):
    """`more` is the page's own words, and what they come to beside the defaults."""
    assert more[0] in section(name, "Cost")
    with torch.device("meta"):
        stack = encoding.build(name, encoding.Host(768, 12, 12, 12, 64, 1024), options)
    count = sum(parameter.numel() for parameter in nn.ModuleList(stack).parameters())
    assert count == encoding.describe(name)["parameters"] + more[1]


@every_encoding
def test_the_cached_tensors_are_those_stated(name: str):
    stated = tuple(re.findall(r"`(\w+)`", fact(name, "Caches")))
    assert stated == encoding.describe(name)["cached"]


@every_encoding
def test_the_hooks_and_the_op_are_those_stated(name: str):
    kind, changes = encoding.find(name), section(name, "What it changes")
    stated = set(re.findall(r"`(\w+)`", changes)) & {*HOOKS}
    own = {hook for hook in HOOKS if getattr(kind, hook) is not getattr(encoding.Encoding, hook)}
    assert stated == own
    assert set(re.findall(r"`(\w+_attention)`", changes)) == {f"{kind.op_name}_attention"}


@every_encoding
def test_the_source_is_the_one_that_the_code_names(name: str):
    number = re.search(r"arXiv \d+\.\d+", encoding.find(name).paper)
    assert number
    assert number[0] in section(name, "Source").replace("\n", " ")


@every_encoding
def test_links_lead_somewhere(name: str):
    links = re.findall(r"\]\(([^)#]+)\)", page(name))
    assert [link for link in links if not (FOLDER / link).is_file()] == []


@every_encoding
def test_the_example_runs(name: str, capsys: pytest.CaptureFixture[str]):
    code = examples(section(name, "Example"))
    assert len(code) == 1
    assert len([line for line in code[0].splitlines() if line]) == 5
    torch.manual_seed(0)
    result: dict[str, object] = {}
    exec(compile(code[0], f"{name}.md", "exec"), result)
    assert capsys.readouterr().out == "torch.Size([1, 100, 32])\n"
    config = result["model"].config
    assert config.encoding == name
    assert bool(config.encoding_options) == bool(encoding.options(name))


@every_encoding
def test_the_picture_is_shown_and_its_text_names_the_head(name: str):
    text = section(name, "What a head does")
    ((about, link),) = re.findall(r"^!\[(.+)\]\((.+)\)$", text, re.MULTILINE)
    assert (FOLDER / link).resolve() == IMAGES / f"{name}.svg"
    drawn = {element.text for element in ElementTree.parse(FOLDER / link).iter()}
    (head,) = re.findall(r"Of four heads (layer \d, head \d) ", text.replace("\n", " "))
    assert f"{name}, flip-flop: {head}" in drawn
    assert head in about
    assert f" with {name} " in about


def test_every_picture_is_of_an_encoding_and_small():
    assert {path.name for path in IMAGES.iterdir()} == {f"{name}.svg" for name in encoding.names()}
    assert max(path.stat().st_size for path in IMAGES.iterdir()) < 60_000


@pytest.fixture
def pictures() -> ModuleType:
    """The script that draws them."""
    spec = spec_from_file_location("pictures", FOLDER / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_read_is_answered_by_the_last_write_and_the_reads_since(pictures: ModuleType):
    tokens = torch.tensor([FlipFlop().vocab.index(sign) for sign in "w1i0r1w0r0i1r0r"])
    assert list(pictures.answers(tokens)) == [(4, [1]), (8, [7]), (12, [7, 9]), (14, [7, 9, 13])]


def test_the_head_that_is_drawn_gives_the_answers_the_most_weight(
    pictures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("matplotlib")
    task = FlipFlop(length=64)
    model = Decoder(Config(task.vocab_size, dim=16, layers=2, heads=2, encoding="cope")).eval()
    monkeypatch.setattr(pictures, "IMAGES", tmp_path)
    monkeypatch.setattr(pictures, "load_run", lambda _, device: (model, None, task))
    told = pictures.draw("cope", tmp_path)
    found = re.fullmatch(r"layer (\d), head (\d) with (0\.\d\d) of its weight", told)
    assert found

    reads: list[torch.Tensor] = []
    for tokens in read(FlipFlop(length=24), 16):
        word = "".join(task.vocab[token] for token in tokens)
        weights = torch.stack([layer.weights for layer in trace(model, tokens).layers])
        for query in (place for place, sign in enumerate(word) if sign == "r"):
            since = word.rindex("w", 0, query)
            keys = [key for key in range(since + 1, query) if word[key - 1] in "wr"]
            reads.append(weights[:, :, query, keys].sum(-1))
    mean = torch.stack(reads).mean(0)
    assert int(mean.argmax()) == 2 * int(found[1]) + int(found[2])
    assert float(found[3]) == pytest.approx(float(mean.max()), abs=0.005001)
    signs = [element.text for element in ElementTree.parse(tmp_path / "cope.svg").iter()]
    assert f"cope, flip-flop: layer {found[1]}, head {found[2]}" in signs
    assert signs.count("w") == signs.count("r") == 4 * 3  # three panels' keys, one's queries
