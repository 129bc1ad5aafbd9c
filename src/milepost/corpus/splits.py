"""Which documents are for training, for validation and for testing.

A document nobody has assigned goes by its name alone: 90 % are for training, 5 % each for
validation and for testing, by a hash. So no document is in two splits, and none moves when others
come or go.

What its authors have split stays so. Where they published less than three parts:

    train and validation   what is published for validation is tested on, as is usual with such
                           corpora (C4); a tenth of the training documents, by name, validates
    one of them, and test  a tenth of the one, by name, validates, and the others are trained on
    train or validation    as if nobody had split it
    test                   it is tested on, and there is nothing to train on
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import sha256

TRAIN, VALIDATION, TEST = "train", "validation", "test"
SPLITS = (TRAIN, VALIDATION, TEST)
SEPARATOR = b"\n\n"

Documents = Iterable[tuple[str, bytes]]
"""Names and texts."""

Assigned = Iterator[tuple[str, str, bytes]]
"""Of each document its split, its name and its text."""


def split_of(name: str) -> str:
    """The split of a document, by its name alone."""
    share = int.from_bytes(sha256(os.fsencode(name)).digest()[:4], "big") / 2**32
    return TRAIN if share < 0.9 else VALIDATION if share < 0.95 else TEST


def unassigned(documents: Documents) -> Assigned:
    """Each document in the split of its name."""
    return ((split_of(name), name, text) for name, text in documents)


def published(parts: Mapping[str, Documents]) -> Assigned:
    """Each document in the split of the part that it is published in, or what stands for it."""
    for part, documents in parts.items():
        split = _rule(part, parts)
        yield from ((split(name), name, text) for name, text in documents)


def _rule(part: str, parts: Collection[str]) -> Callable[[str], str]:
    if part == TEST or set(parts) == set(SPLITS):
        return lambda _: part
    if TEST not in parts and len(parts) == 1:
        return split_of
    if TEST not in parts and part == VALIDATION:
        return lambda _: TEST
    return lambda name: TRAIN if split_of(name) == TRAIN else VALIDATION


def by_split(assigned: Assigned) -> list[tuple[str, list[tuple[str, bytes]]]]:
    """The documents of each split, in their order."""
    found: dict[str, list[tuple[str, bytes]]] = {split: [] for split in SPLITS}
    for split, name, text in assigned:
        found[split].append((name, text))
    return list(found.items())


def by_name(documents: Documents) -> list[tuple[str, list[tuple[str, bytes]]]]:
    """The documents of each split, by their names."""
    return by_split(unassigned(documents))
