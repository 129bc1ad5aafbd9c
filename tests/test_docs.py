"""The pages tell the truth: their code runs, their commands exist, their links lead somewhere.

A block is not run if its info string says so (```bash norun); its `milepost` commands must parse
all the same. Commands that train or test are run with a few steps and sequences only.
"""

import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import tyro

import milepost
from milepost import cli, encoding, studies
from milepost.bench import compiled
from milepost.bench import results as bench_results
from milepost.bench import table as bench_table
from milepost.report import results, summary, table
from milepost.report.write import kind_of
from milepost.study.study import read_declaration

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "studies/results"
PAGES = [
    README,
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
ENCODING_PAGES = ROOT / "docs/encodings"
CHEAPER = {
    "train": ["--steps", "2", "--evaluate-every", "0"],
    "evaluate": ["--sequences", "4"],
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, its other words, and where its first line is."""

    language: str
    options: list[str]
    text: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    source = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^```(.*)\n((?:.*\n)*?)```$", source, re.MULTILINE):
        language, *options = match[1].split() or [""]
        yield Block(language, options, match[2], source.count("\n", 0, match.start(2)))


def shell_lines(page: Path, *, run: bool) -> list[list[str]]:
    """The commands of the page's shell blocks that are to be run, or of those that are not."""
    found = []
    for block in blocks(page):
        if block.language in ("bash", "console") and ("norun" not in block.options) == run:
            lines = block.text.replace("\\\n", " ").splitlines()
            if block.language == "console":
                lines = [line[2:] for line in lines if line.startswith("$ ")]
            found += [words for line in lines if (words := shlex.split(line, comments=True))]
    return found


def pages_with(condition: Callable[[Path], object]) -> pytest.MarkDecorator:
    """Parametrise a test by the pages of which the condition is true."""
    pages = [page for page in PAGES if condition(page)]
    return pytest.mark.parametrize("page", pages, ids=[str(p.relative_to(ROOT)) for p in pages])


def has_python(page: Path) -> bool:
    return any(block.language == "python" for block in blocks(page))


@pages_with(has_python)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": page.stem}
    for block in blocks(page):
        if block.language == "python" and "norun" not in block.options:
            # as many empty lines as stand above it, so that a traceback names the page's line
            exec(compile("\n" * block.line + block.text, str(page), "exec"), namespace)


@pages_with(lambda page: shell_lines(page, run=True))
def test_the_commands_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for program, *arguments in shell_lines(page, run=True):
        assert program == "milepost", f"only milepost is run: mark {program} as norun"
        status = cli.main([*arguments, *CHEAPER.get(arguments[0], [])])
        printed = capfd.readouterr()
        assert status == 0, printed.err
        assert printed.out


@pages_with(lambda page: shell_lines(page, run=False))
def test_the_commands_that_are_not_run_exist(page: Path) -> None:
    targets = re.findall(
        r"^([\w.-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    for program, *arguments in shell_lines(page, run=False):
        if program == "make":
            assert set(arguments) <= set(targets)
        elif program == "milepost":
            command = import_module(f"milepost.commands.{arguments[0]}")
            parsed = tyro.cli(command.Arguments, args=arguments[1:])
            if arguments[0] == "study" and not parsed.list:
                studies.load(parsed.name)
        else:
            assert (program, *arguments[:2]) == ("python", "-m", "pytest")
            assert (ROOT / arguments[2]).exists()


def test_the_readme_shows_every_command() -> None:
    shown = {
        words[1]
        for run in (True, False)
        for words in shell_lines(README, run=run)
        if words[0] == "milepost"
    }
    assert shown == set(cli.COMMANDS)


def without_code(page: Path) -> str:
    source = page.read_text(encoding="utf-8")
    source = re.sub(r"^```(?:.*\n)*?```$", "", source, flags=re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", source)


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links to it."""
    source = re.sub(r"^```(?:.*\n)*?```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", source, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pages_with(lambda page: True)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if re.match(r"\w+:", link):
            assert link.startswith("https://"), link
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / unquote(path) if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}"


@pytest.mark.parametrize("index", ["docs/README.md", "docs/decisions/README.md"])
def test_an_index_names_every_page_of_its_folder(index: str) -> None:
    page = ROOT / index
    linked = {
        (page.parent / link).resolve()
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    }
    assert {other.resolve() for other in page.parent.glob("*.md")} - linked == {page}


def test_every_encoding_has_a_page() -> None:
    pages = {page.stem for page in ENCODING_PAGES.glob("*.md")} - {"README"}
    assert pages == set(encoding.names())


def test_every_encoding_has_a_row_in_the_readme() -> None:
    row = re.compile(r"^\| \[(\S+)\]\(docs/encodings/(\S+)\.md\) \| (.+) \| (.+) \|$", re.MULTILINE)
    rows = {name: found for name, *found in row.findall(README.read_text(encoding="utf-8"))}
    assert sorted(rows) == sorted(encoding.names())
    for name, (page, changes, paper) in rows.items():
        kind = encoding.find(name)
        authors, number = kind.paper.split(", arXiv ")
        assert page == name
        assert changes == kind.changes
        assert paper == f"[{authors}](https://arxiv.org/abs/{number})"


def tree() -> dict[str, str]:
    """The README's tree: each path, and what is said of it."""
    source = README.read_text(encoding="utf-8")
    listing = re.search(r"^## The source\n\n```text\n(.*?)^```", source, re.DOTALL | re.MULTILINE)
    assert listing is not None
    found, folder = {}, ""
    for line in listing[1].splitlines():
        name, _, about = line.strip().partition(" ")
        if not line.startswith(" "):
            folder = name
        found[name if name == folder else folder + name] = about.strip()
    return found


def on_disk(folder: Path) -> set[str]:
    """The entries of a folder that git would not ignore, folders with a slash at the end."""
    patterns = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    ignored = [".git", *(pattern.rstrip("/") for pattern in patterns)]
    return {
        entry.name + "/" * entry.is_dir()
        for entry in folder.iterdir()
        if not any(fnmatch(entry.name, pattern) for pattern in ignored)
    }


def test_the_tree_of_the_readme_is_the_tree_on_disk() -> None:
    package = "src/milepost/"
    listed = tree()
    assert all(listed[path] for path in listed if path != package), "each has a line about it"
    inside = {path.removeprefix(package) for path in listed if path.startswith(package)} - {""}
    assert inside == on_disk(ROOT / package)
    folders = {entry for entry in on_disk(ROOT) if entry.endswith("/")}
    assert {path.split("/")[0] + "/" for path in listed} == folders


def test_the_changelog_has_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == milepost.__version__
    first = re.search(
        r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert first is not None
    assert first[1] == milepost.__version__


def test_the_readme_s_table_is_that_of_the_results() -> None:
    begin, end = (f"<!-- cope-table2-mini {word} -->\n" for word in ("begins", "ends"))
    shown = README.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0]
    assert shown.strip() == table.markdown(results.load(RESULTS / "cope-table2-mini")).strip()


def test_the_page_of_results_is_made_of_the_results(tmp_path: Path, monkeypatch: Any) -> None:
    """Byte for byte, its pictures too; each is in use, and no study is left out but what needs."""
    shutil.copytree(RESULTS, tmp_path / "studies/results")
    monkeypatch.chdir(tmp_path)
    summary.write(Path("studies/results"), Path("docs/results.md"))
    made = {path.relative_to(tmp_path / "docs"): path for path in (tmp_path / "docs").rglob("*.*")}
    kept = [ROOT / "docs/results.md", *(ROOT / "docs/images/results").glob("*.svg")]
    assert {path.relative_to(ROOT / "docs") for path in kept} == set(made)
    for name, path in made.items():
        assert path.read_bytes() == (ROOT / "docs" / name).read_bytes(), name


@pytest.mark.parametrize("folder", sorted(path.name for path in RESULTS.iterdir()))
def test_the_results_are_whole_and_of_todays_recipes(folder: str) -> None:
    declared = read_declaration(RESULTS / folder)
    study = studies.load(declared["study"])
    cells = study.cells(declared["scale"], declared["encodings"], declared["seeds"])
    files = {path.stem for path in (RESULTS / folder / "cells").iterdir()}
    assert {cell.hash for cell in cells} == {cell["hash"] for cell in declared["cells"]} == files
    assert not (RESULTS / folder / "failed").exists()
    for path in (RESULTS / folder / "cells").iterdir():
        # the oldest have none; that of a changed tree says so
        commit = json.loads(path.read_text(encoding="utf-8"))["versions"].get("commit", "0" * 40)
        assert re.fullmatch("[0-9a-f]{40}", commit), f"{path}: of no clean commit"


@pytest.mark.parametrize("folder", sorted(path.name for path in RESULTS.glob("*-mini")))
def test_a_study_takes_the_minutes_that_it_says(folder: str) -> None:
    found = kind_of(RESULTS / folder).load(RESULTS / folder)
    seconds: dict[tuple[str, str], list[float]] = {}
    for cell, result in found.finished:
        seconds.setdefault((cell.arm, cell.encoding), []).append(result["seconds"])
    fastest = sum(min(each) * len(each) for each in seconds.values())
    cores = 1 if found.study.alone else 2
    assert found.study.minutes == pytest.approx(fastest / 60 / cores, abs=1)


def test_no_file_names_a_path_of_someone_s_machine() -> None:
    folders = [ROOT / name for name in ("docs", "src", "tests", ".ci")]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    files += [path for path in ROOT.iterdir() if path.is_file()]
    machine = re.compile(rb"(?<![\w.~-])/(?:home|Users|root|work|workspace|mnt|scratch)/\w")
    texts = [path for path in files if path.suffix != ".pyc"]
    assert README in texts
    assert [path for path in texts if machine.search(path.read_bytes())] == []


def test_the_benchmarks_are_those_of_the_results() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    shown = re.findall(r"<!-- (\S+\.json) begins -->\n(.*?)<!-- \1 ends -->", page, re.DOTALL)
    assert {ROOT / name for name, _ in shown} == set((ROOT / "bench/results").iterdir())
    for name, markdown in shown:
        record = bench_results.load(ROOT / name)
        assert markdown.strip() == bench_table.markdown(record, only_summary=True).strip()
        assert record["finished"]
        assert record["source"]["dirty"] is False
        assert all(
            check["verdict"] == "right" for check in record["checks"] if not check["optional"]
        )


def test_what_gpu_kernels_take_is_that_of_the_files() -> None:
    page = (ROOT / "docs/gpu-resources.md").read_text(encoding="utf-8")
    shown = re.findall(r"<!-- (\S+\.json) begins -->\n(.*?)<!-- \1 ends -->", page, re.DOTALL)
    assert {ROOT / name for name, _ in shown} == set((ROOT / "bench/compiled").glob("*.json"))
    for number, (name, markdown) in enumerate(shown):
        record = compiled.load(ROOT / name)
        # the newest Triton first, kernel by kernel; of the others what they come to
        assert markdown.strip() == compiled.markdown(record, only_summary=number > 0).strip()
