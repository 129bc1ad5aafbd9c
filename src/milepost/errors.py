"""The error for a caller's mistake, and the wording of the commonest one.

A message names the argument, what was expected, what came, and the remedy. The command line
prints a `UsageError` without a traceback; any other exception is a defect of ours and keeps one.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class UsageError(ValueError):
    """A caller's mistake: the message says what was expected, what came, and the remedy."""


def unknown(what: str, name: object, known: Iterable[str]) -> UsageError:
    """The error for a name that does not exist: the nearest valid names first, then all of them."""
    name, known = str(name), sorted(known)
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return UsageError(f"unknown {what} {name!r}: {hint}valid: {', '.join(known)}")
