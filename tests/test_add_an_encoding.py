"""`docs/add-an-encoding.md` keeps its promise: one file, and the shared examination finds it.

The page's file is put into a folder of its own, which a small pytest plugin adds to the package
`milepost.encodings` before the examination is collected.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import milepost
from milepost import encoding, encodings
from milepost.errors import UsageError
from milepost.model import Config, Decoder

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/add-an-encoding.md").read_text(encoding="utf-8")
EXAMINATION = ROOT / "tests/test_encodings.py"
NAME = "count-decay"
FILE = NAME.replace("-", "_") + ".py"

# Each slip of the page: what it replaces by what, and which tests must notice.
SLIPS = {
    "sees the future": (
        "self.gate_key(x)",
        "self.gate_key(x - x.mean(1, keepdim=True))",
        {
            "test_a_token_sees_only_the_past",
            "test_cached_decoding_is_the_full_forward",
            "test_padding_changes_nothing",
            "test_packed_documents_are_as_alone",
        },
    ),
    "ignores the cache": (
        ', "gate_keys": gate_keys}\n        return Operands(query, memory, {',
        '}\n        return Operands(query, memory, {"gate_keys": gate_keys, ',
        {"test_cached_decoding_is_the_full_forward"},
    ),
    "learns nothing": (
        "self.log_slope.exp()",
        "self.log_slope.detach().exp()",
        {"test_every_parameter_gets_a_gradient"},
    ),
}


@pytest.fixture(scope="module")
def source() -> str:
    """The one Python block of the page."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 1
    assert f"src/milepost/encodings/{FILE}" in PAGE
    return str(blocks[0])


def examine(folder: Path, source: str, which: str = NAME) -> dict[str, set[str]]:
    """The names of the examination's tests, those selected by `which`, that passed and failed."""
    added = folder / "added"
    added.mkdir()
    (added / FILE).write_text(source, encoding="utf-8")
    plugin = f"import milepost.encodings\nmilepost.encodings.__path__.append({str(added)!r})\n"
    (folder / "added_encodings.py").write_text(plugin, encoding="utf-8")
    report = folder / "report.xml"
    package = Path(milepost.__file__).parents[1]
    options = ["-k", which, "-p", "added_encodings", "-p", "no:cacheprovider"]
    subprocess.run(
        [sys.executable, "-m", "pytest", EXAMINATION, *options, f"--junitxml={report}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(package)])},
        capture_output=True,
        timeout=300,
        check=False,
    )
    results: dict[str, set[str]] = {"passed": set(), "failed": set()}
    for case in ElementTree.parse(report).iter("testcase"):
        results["failed" if len(case) else "passed"].add(case.attrib["name"])
    return results


def examining_tests() -> set[str]:
    """The tests of the examination that take an encoding's name."""
    functions = [
        node
        for node in ast.parse(EXAMINATION.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    return {f.name for f in functions if "name" in [argument.arg for argument in f.args.args]}


def without_case(names: set[str]) -> set[str]:
    """Test names without what they were parametrised with."""
    return {name.partition("[")[0] for name in names}


def test_the_page_s_file_passes_the_whole_examination(source: str, tmp_path: Path) -> None:
    results = examine(tmp_path, source)
    assert results["failed"] == set()
    assert without_case(results["passed"]) == examining_tests()
    assert f"test_a_token_sees_only_the_past[{NAME}]" in results["passed"]
    assert f"test_a_token_sees_only_the_past[{NAME} slope=2.0]" in results["passed"]


@pytest.mark.parametrize("slip", SLIPS)
def test_the_examination_notices_each_slip(slip: str, source: str, tmp_path: Path) -> None:
    right, wrong, noticed_by = SLIPS[slip]
    assert source.count(right) == 1
    which = f"{NAME} and ({' or '.join(noticed_by)})"
    results = examine(tmp_path, source.replace(right, wrong), which)
    assert without_case(results["failed"]) == noticed_by


@pytest.fixture
def added(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's file, added to this process for one test."""
    (tmp_path / FILE).write_text(source, encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(encodings, "__path__", [*encodings.__path__, str(tmp_path)])
        yield
    module = FILE.removesuffix(".py")
    sys.modules.pop(f"{encodings.__name__}.{module}", None)
    vars(encodings).pop(module, None)


@pytest.mark.usefixtures("added")
def test_it_is_an_encoding_like_any_other() -> None:
    assert NAME in encoding.names()
    facts = encoding.describe(NAME)
    assert facts["options"] == {"slope": 0.5}
    assert facts["cached"] == ("key", "value", "gate_keys")
    assert facts["parameters"] == 12 * (12 + 768 * 768)

    host = encoding.Host(dim=8, layers=3, heads=2, key_heads=1, head_dim=4, max_length=16)
    assert len(set(encoding.build(NAME, host))) == 3
    with pytest.raises(UsageError, match="slope must be above 0"):
        encoding.build(NAME, host, {"slope": 0})
    with pytest.raises(UsageError, match="did you mean 'slope'"):
        encoding.build(NAME, host, {"slopes": 1.0})


@pytest.mark.usefixtures("added")
def test_a_steep_slope_sees_only_what_no_count_hides() -> None:
    torch.manual_seed(0)
    settings = {"vocab_size": 7, "dim": 8, "layers": 1, "heads": 2}
    steep = {"encoding": NAME, "encoding_options": {"slope": 1e4}}
    model = Decoder(Config(**settings, **steep)).eval()
    tokens = torch.randint(7, (1, 9))
    alone = model(tokens[:, -1:])
    # every gate is near 1/2, so that each key but the token's own is pushed down by thousands
    torch.testing.assert_close(model(tokens)[:, -1:], alone)


def test_once_taken_out_it_is_gone() -> None:
    assert NAME not in encoding.names()
    with pytest.raises(UsageError, match=f"unknown encoding '{NAME}'"):
        encoding.find(NAME)
