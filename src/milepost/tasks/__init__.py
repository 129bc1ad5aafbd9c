"""The tasks on which position encodings are compared.

The folder is the registry: `flip_flop.py` is the task `flip-flop`, and a file put here with one
`Task` subclass is found without further ado. Listing the names imports none of them.
"""

from dataclasses import fields
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from milepost.errors import unknown

if TYPE_CHECKING:
    from milepost.tasks.task import Task


def names() -> tuple[str, ...]:
    """The tasks' names, in alphabetical order."""
    files = (module.name for module in iter_modules(__path__))
    return tuple(sorted(file.replace("_", "-") for file in files if file != "task"))


def build(name: str, /, **settings: Any) -> "Task":
    """The task `name`; settings left out are the paper's."""
    if name not in names():
        raise unknown("task", name, names())
    known = settings_of(name)
    for setting in settings:
        if setting not in known:
            raise unknown(f"setting of the {name} task", setting, known)
    return _kind(name)(**settings)


def settings_of(name: str) -> tuple[str, ...]:
    """The names of the settings that the task has."""
    return tuple(field.name for field in fields(_kind(name)))


def _kind(name: str) -> "type[Task]":
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    kinds = [kind for kind in classes if getattr(kind, "name", None) == name]
    assert len(kinds) == 1, f"{module.__name__} must define one Task whose name is {name!r}"
    kind: type[Task] = kinds[0]
    return kind
