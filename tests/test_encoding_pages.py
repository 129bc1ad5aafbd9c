"""The pages of docs/encodings say what the code does: options, costs, hooks, examples."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from milepost import encoding

FOLDER = Path(__file__).parents[1] / "docs" / "encodings"
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
