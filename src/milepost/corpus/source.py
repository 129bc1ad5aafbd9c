"""What a corpus is before it is read: its documents, and what its bytes follow from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from milepost.corpus.splits import SEPARATOR, Assigned


@dataclass(frozen=True)
class Source:
    """A corpus that can be read.

    Attributes:
        assigned: begins to read: each document's split, name and text, those of a split in order.
        identity: what its bytes follow from, as far as can be told without reading it.
        size: about how many bytes it has; None if that cannot be told, and it may be too many for
            the memory.
        between: what stands between two documents.
        line_ends: whether a line end counts as a word, WikiText's <eos>.
    """

    assigned: Callable[[], Assigned]
    identity: Mapping[str, Any]
    size: int | None
    between: bytes = SEPARATOR
    line_ends: bool = False
