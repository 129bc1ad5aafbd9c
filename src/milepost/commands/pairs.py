"""`name=value` words of a command line."""

import json
from collections.abc import Sequence
from typing import Any

from milepost.errors import UsageError


def pairs(argument: str, given: Sequence[str]) -> dict[str, Any]:
    """`name=value` words as a dict; a value is read as JSON, or is `none`, or the text itself."""
    values = {}
    for word in given:
        name, equals, text = word.partition("=")
        if not (name and equals):
            raise UsageError(f"--{argument} takes name=value, got {word!r}: write it as p_max=32")
        if name in values:
            raise UsageError(f"--{argument} has {name} twice: give it one value")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = None if text == "none" else text
    return values
