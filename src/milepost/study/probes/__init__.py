"""What a study measures of a trained model beside its errors: one file each.

The folder is the registry: `perplexity.py` is the probe `perplexity`. A probe has two functions,

    measure(model, task, *, seed, stop, **settings) -> {key: {metric: number or list}}
    reads(task, **settings) -> pairs (how many sequences, of how many tokens)

of which the second foretells what the first will cost. All that it returns can be JSON. What it
asks is the same for every row and seed, unless the file says why not.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Protocol, cast

from milepost.errors import unknown
from milepost.model import Decoder
from milepost.tasks.task import Task

Found = dict[str, dict[str, Any]]


class Kind(Protocol):
    """What a file of this folder has."""

    def measure(
        self, model: Decoder, task: Task, *, seed: int, stop: Callable[[], bool], **settings: Any
    ) -> Found:
        """Measure; once `stop` is true, what comes back is thrown away."""

    def reads(self, task: Task, **settings: Any) -> Iterable[tuple[float, int]]:
        """How many sequences of how many tokens the model will read."""


def names() -> tuple[str, ...]:
    """The probes there are."""
    return tuple(sorted(module.name for module in iter_modules(__path__)))


def load(kind: str) -> Kind:
    """The probe of that name."""
    if kind not in names():
        raise unknown("probe", kind, names())
    return cast(Kind, import_module(f"{__name__}.{kind}"))
