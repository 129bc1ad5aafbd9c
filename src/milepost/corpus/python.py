"""The standard library of the Python that runs, as prose and as code.

Everything is taken but tests, what this machine's build wrote (`_sysconfigdata…`), installed
packages, and from the code the topics of `help()`, which are prose. Its modules are read and
parsed, never imported. Another version of Python has other text.
"""

import ast
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path

from milepost.corpus.folders import walk
from milepost.corpus.splits import SEPARATOR

_NOT_OF_THE_LIBRARY = {
    "__pycache__",
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idle_test",
}
_TOPICS = "pydoc_data/topics.py"
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def standard_library() -> Iterator[tuple[str, str]]:
    """Name and source of each module of the running Python's standard library."""

    def wanted(name: str) -> bool:
        return name not in _NOT_OF_THE_LIBRARY and not name.startswith("_sysconfigdata")

    for name, path in walk(Path(sysconfig.get_path("stdlib")), wanted):
        if path.suffix == ".py":
            with tokenize.open(path) as source:
                yield name, source.read()


def code() -> Iterator[tuple[str, bytes]]:
    """The documents of `python-code`."""
    return ((name, source.encode()) for name, source in standard_library() if name != _TOPICS)


def prose() -> Iterator[tuple[str, bytes]]:
    """The documents of `python-prose`."""
    for name, source in standard_library():
        if name == _TOPICS:
            for topic, text in sorted(topics(source).items()):
                yield f"{name}#{topic}", text.encode()
        else:
            # a docstring may write what UTF-8 cannot: half a surrogate pair
            yield name, docstrings(source).encode(errors="backslashreplace")


def docstrings(source: str) -> str:
    """The documentation strings of a module in the order of the source, without indentation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as one of an escape that a later Python refuses
        tree = ast.parse(source)
    documented = [node for node in _statements(tree) if isinstance(node, _DOCUMENTED)]
    documented.sort(key=lambda node: 0 if isinstance(node, ast.Module) else node.lineno)
    found = (ast.get_docstring(node) for node in documented)
    return SEPARATOR.decode().join(text for text in found if text)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """The module, its statements however deep, and their handlers and cases.

    `ast.walk` would visit all expressions too, which takes most of its time.
    """
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            left.extend(getattr(node, block, ()))


def topics(source: str) -> dict[str, str]:
    """What `pydoc_data.topics` assigns: a text for each topic of `help()`."""
    (assigned,) = [node for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    found: dict[str, str] = ast.literal_eval(assigned.value)
    return found
