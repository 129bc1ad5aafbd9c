"""The documentation as a site: built once, warnings being errors, and then looked at as HTML.

What `tests/test_docs.py` holds the Markdown to is not asked again here.
"""

import inspect
import re
import subprocess
import sys
from collections import Counter
from functools import cached_property
from html import unescape
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

import pytest

from milepost import encoding, tasks

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OUTSIDE = {
    "introduction": "README.md",
    "changes": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
}
GENERATED = {"genindex", "py-modindex", "search"}


def sources() -> dict[str, Path]:
    """The Markdown of each page, by the page's address without its suffix."""
    inside = {
        path.relative_to(DOCS).with_suffix("").as_posix(): path for path in DOCS.rglob("*.md")
    }
    named = {re.sub(r"(^|/)README$", r"\1index", page): path for page, path in inside.items()}
    return named | {page: ROOT / name for page, name in OUTSIDE.items()}


SOURCES = sources()


class Page(HTMLParser):
    """What a page has: its ids, where it leads, what it loads, its classes and its words."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.html = path.read_text(encoding="utf-8")
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.tags: Counter[str] = Counter()
        self.classes: Counter[str] = Counter()
        self.feed(self.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            elif name == "class":
                self.classes.update((value or "").split())
            elif (tag, name) == ("a", "href"):
                self.links.append(value or "")
            elif name in ("src", "srcset", "data", "poster", "href"):
                self.loaded.append(value or "")

    @cached_property
    def article(self) -> str:
        """Its words and nothing else, without white space."""
        inner = self.html.partition("<article")[2].partition("</article>")[0]
        return squeezed(
            unescape(re.sub(r"<a class=\"headerlink\".*?</a>|<[^>]*>", "", f"<{inner}"))
        )


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site: warnings are errors."""
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q"]
    command += ["-d", str(folder / "doctrees"), str(DOCS), str(folder / "site")]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    return {
        path.relative_to(site).with_suffix("").as_posix(): Page(path)
        for path in site.rglob("*.html")
    }


def test_every_page_is_there_once(pages: dict[str, Page]) -> None:
    assert set(pages) - GENERATED == set(SOURCES)


def test_the_sidebar_has_every_page_once_and_each_encoding_by_its_name(
    pages: dict[str, Page],
) -> None:
    sidebar = pages["index"].html.partition('class="sidebar-tree"')[2].partition("</aside>")[0]
    captions = re.findall(r'class="caption-text">([^<]*)<', sidebar)
    assert captions == ["To use it", "Encodings", "To change it", "Decisions", "API"]
    listed = re.findall(r'<a class="reference internal" href="([^"]*)">([^<]*)</a>', sidebar)
    addresses = [unquote(address).removesuffix(".html") for address, _ in listed]
    assert sorted([*addresses, "index"]) == sorted(SOURCES)
    for name in encoding.names():
        assert (f"encodings/{name.replace('+', '%2B')}.html", name) in listed


def test_every_link_leads_somewhere(pages: dict[str, Page]) -> None:
    known = {page.path: page for page in pages.values()}
    for page in pages.values():
        for link in page.links:
            if re.match(r"\w+:", link):
                assert link.startswith("https://"), link
                continue
            address, _, anchor = link.partition("#")
            target = (page.path.parent / unquote(address)).resolve() if address else page.path
            assert target.is_file(), f"{page.path.name}: {link}"
            if anchor and target in known:
                assert unquote(anchor) in known[target].ids, f"{page.path.name}: {link}"


def test_a_page_loads_nothing_from_elsewhere(pages: dict[str, Page], site: Path) -> None:
    for page in pages.values():
        for address in page.loaded:
            assert re.match(r"(data:|#|(?!\w+:|//))", address), f"{page.path.name}: {address}"
            if not address.startswith(("data:", "#")):
                file = page.path.parent / unquote(re.split("[?#]", address)[0])
                assert file.is_file(), f"{page.path.name}: {address}"
    for sheet in site.rglob("*.css"):
        asked = re.findall(r"@import[^;]*|url\([^)]*\)", sheet.read_text(encoding="utf-8"))
        assert [one for one in asked if not re.match(r"url\([\"']?data:", one)] == []


def documented() -> dict[str, str]:
    """The modules whose names are in the API, with the page of each."""
    automodule = re.compile(r"^\.\. automodule:: (\S+)\n(?! +:no-members:)", re.MULTILINE)
    return {
        name: f"api/{page.stem}"
        for page in (DOCS / "api").glob("*.md")
        for name in automodule.findall(page.read_text(encoding="utf-8"))
    }


def public(name: str) -> dict[str, object]:
    """A module's functions and classes for others: what it says, or all that it tells of."""
    module = import_module(name)
    said = getattr(module, "__all__", ())
    return {
        key: value
        for key, value in vars(module).items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and (key in said or (not said and value.__module__ == name and key[0] != "_"))
        and value.__doc__
    }


def test_every_public_name_has_an_entry(pages: dict[str, Page]) -> None:
    assert {"milepost.ops", "milepost.model", "milepost.look", "milepost.hf"} <= set(documented())
    for module, page in documented().items():
        for name in public(module):
            assert f"{module}.{name}" in pages[page].ids


def test_every_encoding_and_task_has_an_entry(pages: dict[str, Page]) -> None:
    for name in encoding.names():
        kind = encoding.find(name)
        assert f"{kind.__module__}.{kind.__name__}" in pages["api/encodings"].ids
    for name in tasks.names():
        assert f"module-milepost.tasks.{name.replace('-', '_')}" in pages["api/tasks"].ids


def test_docstrings_come_through_whole(pages: dict[str, Page]) -> None:
    """Their paragraphs are there to the letter, but for backticks, bullets and stress."""
    for module, page in documented().items():
        for name, value in public(module).items():
            told = re.split(r"^\w+:$", inspect.getdoc(value) or "", flags=re.MULTILINE)[0]
            for paragraph in told.split("\n\n"):
                words = re.sub(r"[`*]|^ *- ", "", paragraph, flags=re.MULTILINE)
                shown = pages[page].article.replace("*", "").replace("`", "")
                assert squeezed(words) in shown, f"{module}.{name}"


def test_equations_are_mathml(pages: dict[str, Page]) -> None:
    for name, source in SOURCES.items():
        text = re.sub(r"^```(?:.*\n)*?```$", "", source.read_text("utf-8"), flags=re.MULTILINE)
        blocks = re.findall(r"^\$\$.*\$\$$", text, re.MULTILINE)
        assert pages[name].classes["equation"] == len(blocks)
        assert pages[name].tags["math"] >= len(blocks)
        assert "$$" not in pages[name].article
        assert "\\frac" not in pages[name].article


def test_code_is_coloured_by_its_language_alone(pages: dict[str, Page]) -> None:
    for name, source in SOURCES.items():
        if name.startswith("api/"):
            continue
        fences = Counter(re.findall(r"^ *```(\w+)", source.read_text("utf-8"), re.MULTILINE))
        for language in ("bash", "console", "python", "text"):
            assert pages[name].classes[f"highlight-{language}"] == fences[language]


def test_a_docstring_means_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS / "_extensions")
    docstring = """Of `x`, x_ and |a| * b:
- *one* of `f(x)`s,
  or `Error`

    x_ = `y`
    a | b

Args:
    x, y: as `y
        z`.

        More of it.

x = y     of z
"""
    assert (
        import_module("docstrings").restructured(docstring).rstrip()
        == r"""Of :py:obj:`x`, x\_ and \|a\| \* b:

- *one* of ``f(x)``\ s,
  or :py:obj:`.Error`

  .. code-block:: text

     x_ = `y`
     a | b

Args:
    x, y: as ``y z``.

        More of it.

.. code-block:: text

   x = y     of z"""
    )


def test_functions_stand_apart_from_what_they_are_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS / "_extensions")
    mathml = import_module("mathml").mathml
    for latex, gaps in ((r"2 \log f_l", 2), (r"\log(f_l)", 0), (r"\max\left(0, x\right)", 0)):
        assert len(list(mathml(latex, block=True).iter("mspace"))) == gaps, latex
    assert "".join(mathml(r"\mathrm{softmax}_j(s)", block=False).itertext()) == "softmaxj(s)"
