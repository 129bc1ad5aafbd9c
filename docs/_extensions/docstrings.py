"""Docstrings as autodoc takes them, which are written as they read best in the source.

That is Markdown's way: code between single backticks, an equation or a listing as an indented
block or in columns, a list right below its paragraph. Whatever else reStructuredText would see in
x_, |a| or a * b means itself. Sections such as `Args:` are left to napoleon, which comes after.
"""

import ast
import re
from inspect import isfunction
from textwrap import dedent, indent
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

SECTION = re.compile(r" *(Args|Attributes|Options|Raises|Returns|Warns|Yields):$", re.MULTILINE)
COLUMNS = re.compile(r"\S {2,}\S")
BULLET = re.compile(r"^ *- ", re.MULTILINE)
INLINE = re.compile(r"`(?P<code>[^`]+)`|(?<![\w*])\*\w[^*`]*\*(?![\w*])|[*|\\]|_(?!\w)")
NAME = re.compile(r"[A-Za-z_][\w.]*")


def restructured(docstring: str) -> str:
    """The docstring, paragraph by paragraph: deeper ones, and those in columns, are blocks."""
    written: list[str] = []
    block: list[str] = []
    margin = 0
    for paragraph in [*re.split(r"\n(?:\s*\n)+", docstring.rstrip()), ""]:  # which ends a block
        if width(paragraph) > margin or all(map(COLUMNS.search, paragraph.split("\n"))):
            block.append(paragraph)
            margin = min(margin, width(paragraph))
            continue
        if block:
            written.append(literal("\n\n".join(block), margin))
            block = []
        written.append(prose(paragraph))
        margin = text_margin(paragraph)
    return "\n\n".join(written)


def width(paragraph: str) -> int:
    """How far it is indented."""
    return len(paragraph) - len(paragraph.lstrip(" "))


def text_margin(paragraph: str) -> int:
    """Where text after a paragraph stands, which may be still in its last entry."""
    if SECTION.match(paragraph):
        return width(paragraph) + 8
    bullets = BULLET.findall(paragraph)
    return len(bullets[-1]) if bullets else width(paragraph)


def literal(block: str, margin: int) -> str:
    """A block as it stands, coloured if it is Python."""
    block = dedent(block)
    try:
        ast.parse(block)
        language = "python"
    except SyntaxError:
        language = "text"
    return indent(f".. code-block:: {language}\n\n{indent(block, '   ')}", " " * margin)


def prose(paragraph: str) -> str:
    """A paragraph, a list or a section."""
    text = INLINE.sub(inline, paragraph)
    first = BULLET.search(text)
    if first and first.start():
        return f"{text[: first.start()]}\n{text[first.start() :]}"
    return text


def inline(match: re.Match[str]) -> str:
    """Code, which may be a name of the API; a stressed word; a character that means itself."""
    code = match["code"]
    if code is None:
        return match[0] if len(match[0]) > 1 else f"\\{match[0]}"
    code = " ".join(code.split())
    marked = f"``{code}``"
    if NAME.fullmatch(code):
        # with a dot it is looked for in all modules, which is too much for words such as `start`
        marked = f":py:obj:`{'.' * code[0].isupper()}{code}`"
    before = match.string[: match.start()][-1:]
    after = match.string[match.end() :][:1]
    return ("\\ " if before.isalnum() else "") + marked + ("\\ " if after.isalnum() else "")


def rewrite(app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Rewrite a docstring."""
    lines[:] = restructured("\n".join(lines)).split("\n")
    if what in ("property", "data", "attribute"):
        lines.insert(0, "\\")  # is nothing, but keeps napoleon from a type before the first colon


def without_factories(
    app: Sphinx, what: str, name: str, obj: object, options: Any, signature: str, returned: str
) -> tuple[str, str]:
    """Write `...` for what a dataclass makes anew each time, as `<factory>` is no Python."""
    return signature and signature.replace("<factory>", "..."), returned


def skip_aliases(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: Any
) -> bool | None:
    """Leave out a class's other name for a function, such as `op`: it is told of where it is."""
    if what == "class" and isfunction(obj) and obj.__name__ != name.rpartition(".")[2]:
        return True
    return None


def set_dashes(app: Sphinx, doctree: nodes.document) -> None:
    """Make a dash of the two hyphens before what a parameter is."""
    for fields in doctree.findall(nodes.field_list):
        for text in list(fields.findall(nodes.Text)):
            if text.startswith(" -- "):
                text.parent.replace(text, nodes.Text(f" – {text[4:]}"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Come before napoleon."""
    app.connect("autodoc-process-docstring", rewrite, priority=400)
    app.connect("autodoc-process-signature", without_factories)
    app.connect("autodoc-skip-member", skip_aliases)
    app.connect("doctree-read", set_dashes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
