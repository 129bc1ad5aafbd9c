"""The `milepost` command: finds the subcommand, and turns its errors into one line each.

The subcommands are named here, not discovered, so that `milepost --help` imports nothing else; a
subcommand's module in `milepost.commands`, with all that it needs, is imported when it is asked
for. Each has an `Arguments` dataclass, which is the command line too, and a `run` that returns the
exit status.

Exit status: 0 for success, 1 where part of the work failed, 2 for a mistake in the command or its
surroundings (one line on standard error), 130 after Ctrl-C.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from milepost import __version__
from milepost.errors import UsageError, unknown

COMMANDS = {
    "encodings": "list the position encodings and what each changes",
    "tasks": "list the tasks, their test sets and an example",
    "train": "train one model on one task",
    "evaluate": "test a trained model",
    "retrofit": "put an encoding into a Hugging Face checkpoint",
    "convert": "turn a run into a Hugging Face folder, and back",
    "generate": "continue a text",
    "ask": "ask a model for passkeys, or to count words in the last sentence",
    "eval": "score a model on lm-eval's tasks",
    "study": "run a paper's table: every encoding, task and seed",
    "look": "show what the heads of a model count in a text",
    "report": "draw a study's table, plots and page again",
    "bench": "measure the speed and memory of the ops",
}


def usage() -> str:
    """What `milepost --help` prints."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {about}" for name, about in COMMANDS.items()]
    return (
        "usage: milepost COMMAND [options]\n\n"
        "Contextual position encodings for transformers, beside every token-based one.\n\n"
        "commands:\n" + "\n".join(lines) + "\n\n"
        "`milepost COMMAND --help` lists a command's options.\n"
        "A table in minutes: milepost study cope-table2 --scale mini"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(usage())
        return 0
    if given[0] == "--version":
        print(f"milepost {__version__}")
        return 0
    try:
        status = _run(given[0], given[1:])
        sys.stdout.flush()
        return status
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # the reader of our output has gone, as in `milepost encodings | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(name: str, arguments: list[str]) -> int:
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    command = import_module(f"milepost.commands.{name}")

    import tyro

    parsed = tyro.cli(command.Arguments, prog=f"milepost {name}", args=arguments)
    status: int = command.run(parsed)
    return status
