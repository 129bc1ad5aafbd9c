"""`milepost tasks`: the tasks, their test sets and an example of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

WIDTH = 96


@dataclass(frozen=True)
class Arguments:
    """List the tasks and their test sets with an example, carets under the scored tokens."""

    task: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = None
    """Only this task, or this other recipe for one, with an example of each of its test sets."""
    scale: Literal["mini", "paper"] = "mini"
    """The task's settings to draw with."""
    seed: int = 0
    """Another seed draws another example."""


def run(arguments: Arguments) -> int:
    """Print the list."""
    from milepost import tasks
    from milepost.training import recipes

    for name in tasks.names() if arguments.task is None else [arguments.task]:
        recipe = recipes.find(name, arguments.scale)
        task = tasks.build(recipe.get("task", name), **recipe.get("task_settings", {}))
        print(f"{name}: {task.paper}")
        if others := recipes.others(name):
            names = f"{', '.join(others)} (milepost train --task {others[0]})"
            print(f"  {'other recipes':18}{names}")
        for label, test_set in task.test_sets().items():
            print(f"  {label:18}{test_set.about}")
            if arguments.task is not None or label == "in":
                batch = test_set.task.batch(arguments.seed, "example", 0, 1)
                shown = test_set.task.show(batch.tokens[0], batch.scored[0])
                print("\n".join(f"    {line}" for line in wrapped(*shown.split("\n"))))
        print()
    return 0


def wrapped(words: str, marks: str) -> Iterator[str]:
    """Two lines that belong together, broken between words into pairs of `WIDTH`."""
    while words:
        end = len(words) if len(words) <= WIDTH else words.rindex(" ", 0, WIDTH + 1)
        yield words[:end]
        if mark := marks[:end].rstrip():
            yield mark
        words, marks = words[end + 1 :], marks[end + 1 :]
