"""Which files are pages, at which addresses, and what the sidebar lists.

The pages are written to be read on GitHub, where the README.md of a folder is its index and links
lead from file to file. So it is here too: no page is there twice or has text for the site alone.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.project import Project

from milepost import encoding

OUTSIDE = {
    "introduction": Path("../README.md"),
    "changes": Path("../CHANGELOG.md"),
    "contributing": Path("../CONTRIBUTING.md"),
}
"""The pages that are not in the folder of the documentation."""

LIST = re.compile(r"^(\S.*):\n\n((?:(?:- |  ).*\n)+)", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\(([^):#]+\.md)\)")

CLASS = """
## [`{name}`](../encodings/{name}.md)

```{{eval-rst}}
.. automodule:: {module}
   :no-members:
.. autoclass:: {module}.{kind}
   :no-members:
```
"""

Entry = tuple[str, str]
"""A title, and the name of a page."""


class Pages(Project):
    """The files and the names of their pages, which are their addresses."""

    def discover(
        self, exclude_paths: Iterable[str] = (), include_paths: Iterable[str] = ("**",)
    ) -> set[str]:
        """Find the pages in the folder, and add those outside."""
        self.docnames = super().discover(exclude_paths, include_paths) | set(OUTSIDE)
        return self.docnames

    def path2doc(self, filename: str | os.PathLike[str]) -> str | None:
        """Name the page that a file is."""
        path = Path(os.path.relpath(self.srcdir / filename, self.srcdir))
        for docname, outside in OUTSIDE.items():
            if path == outside:
                return docname
        docname = super().path2doc(path)
        return docname and re.sub(r"(^|/)README$", r"\1index", docname)

    def doc2path(self, docname: str, absolute: bool) -> Path:
        """Find the file of a page."""
        if docname not in OUTSIDE:
            return super().doc2path(docname, absolute)
        return self.srcdir / OUTSIDE[docname] if absolute else OUTSIDE[docname]


def use_pages(app: Sphinx) -> None:
    """Find pages as above from here on."""
    app.project = app.env.project = Pages(app.srcdir, app.config.source_suffix)


def add_sidebar(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the sidebar into the front page, which does not show it."""
    if docname == "index":
        for caption, entries in groups(app.env):
            lines = [":hidden:", f":caption: {caption}" * bool(caption), ""]
            lines += [f"{title} <{page}>" for title, page in entries]
            source[0] += "\n".join(["", "```{toctree}", *lines, "```", ""])


def groups(env: BuildEnvironment) -> Iterator[tuple[str, list[Entry]]]:
    """What the front page lists, by the line above each list; then a group for each index in it."""
    yield "", [("Introduction", "introduction"), ("Changes", "changes")]
    for caption, items in LIST.findall(text_of(env, "index")):
        entries = links(env, "index", items)
        indexes = [entry for entry in entries if entry[1].endswith("/index")]
        yield caption, [entry for entry in entries if entry not in indexes]
        for title, page in indexes:
            yield title, folder(env, page)
    yield "API", folder(env, "api/index")


def folder(env: BuildEnvironment, index: str) -> list[Entry]:
    """An index, and the pages beside it in the order in which it has them."""
    beside = index.removesuffix("index")
    entries = links(env, index, text_of(env, index))
    return [("Overview", index), *(entry for entry in entries if entry[1].startswith(beside))]


def links(env: BuildEnvironment, page: str, text: str) -> list[Entry]:
    """The pages that a text links to, by what it first calls them."""
    found: dict[str, str] = {}
    for title, link in LINK.findall(text):
        linked = env.path2doc(env.relfn2path(link, page)[1])
        found.setdefault(linked, (title[0].upper() + title[1:]).replace("`", ""))
    return [(title, linked) for linked, title in found.items()]


def text_of(env: BuildEnvironment, page: str) -> str:
    """The Markdown of a page, on which the sidebar depends."""
    path = env.doc2path(page)
    env.note_dependency(path, docname="index")
    return path.read_text(encoding="utf-8")


def add_encodings(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the class of every encoding into their page of the API."""
    if docname == "api/encodings":
        for name in encoding.names():
            kind = encoding.find(name)
            source[0] += CLASS.format(name=name, module=kind.__module__, kind=kind.__name__)


def setup(app: Sphinx) -> dict[str, bool]:
    """Take over before the pages are read."""
    app.connect("builder-inited", use_pages)
    app.connect("source-read", add_sidebar)
    app.connect("source-read", add_encodings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
