"""What the tokens of a task are, and which of its sequences a model is looked at with.

Token classes are what a head may have learned to count: instructions in flip-flop, blanks in
selective copy, statements in counting, newlines and ends of sentences in text.
"""

from collections.abc import Iterator
from dataclasses import fields, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from milepost.errors import UsageError
from milepost.tasks.task import Task, is_whole
from milepost.tasks.text import BYTES
from milepost.training.data import sequences

LARGEST = 64
"""A vocabulary of more tokens is not taken token by token."""

NAMED: dict[str, dict[str, str]] = {
    "flip-flop": {"w": "w", "i": "i", "r": "r", "bit": "0 1"},
    "selective-copy": {"blank": ".", "symbol": "A B C D E F G H I J K L M N", "separator": "|"},
}
"""The tokens of each class, by task."""


def token_classes(task: Task) -> dict[str, Bool[Tensor, " vocab"]]:
    """Which tokens are of a class, by its name; each token is of one class.

    Bytes are sorted by what they are as characters, the tokens of the tasks below by what they
    are for, and any other small vocabulary has a class for each token.

    Raises:
        UsageError: the vocabulary is large and of no known task.
    """
    vocab = task.vocab
    if vocab == BYTES:
        names = [_class_of(byte) for byte in range(len(BYTES))]
    elif task.name in NAMED:
        of_word = {word: n for n, words in NAMED[task.name].items() for word in words.split()}
        names = [of_word[word] for word in vocab]
    elif task.name == "counting":
        names = [_part_of_statement(word) for word in vocab]
    elif len(vocab) <= LARGEST:
        names = list(vocab)
    else:
        raise UsageError(
            f"task must have known token classes or at most {LARGEST} tokens, got {task.name!r} "
            f"with {len(vocab)}: name its classes in milepost.look.tokens"
        )
    return {name: torch.tensor([other == name for other in names]) for name in dict.fromkeys(names)}


def _class_of(byte: int) -> str:
    character = chr(byte)
    if character in "\n ":
        return "newline" if character == "\n" else "space"
    if character in ".!?":
        return "sentence end"
    if character.isascii() and character.isalnum():
        return "digit" if character.isdigit() else "letter"
    return "other"


def _part_of_statement(word: str) -> str:
    """Of `a = 0 ;`, `a ++;`, `pass;` and `print a`, what a token is."""
    signs = {"pass;": "pass", "=": "set", "++;": "increment", ";": ";", "print": "print"}
    if word in signs:
        return signs[word]
    return "number" if word.isdigit() else "padding" if word == "<pad>" else "variable"


def at_length(task: Task, length: int | None) -> Task:
    """The task with sequences of `length` tokens; as it is if None.

    Raises:
        UsageError: the task has no setting of that name, or not of that value.
    """
    if length is None:
        return task
    if not has_length(task):
        raise UsageError(
            f"length must be left out for the {task.name} task, which has no such setting, got "
            f"{length!r}: its sequences are as long as they come"
        )
    return replace(task, length=length)  # type: ignore[call-arg]  # looked for above


def has_length(task: Task) -> bool:
    """Whether the length of its sequences is a setting."""
    return "length" in {field.name for field in fields(task)}


def read(task: Task, count: int) -> Iterator[Int[Tensor, " S"]]:
    """What a model reads of the first `count` test sequences, each up to its last scored token.

    Raises:
        UsageError: `count` is not a number of sequences.
    """
    if not is_whole(count, 1):
        raise UsageError(f"sequences must be a whole number above 0, got {count!r}")
    for batch in sequences(task, 0, "test", count):
        for tokens, scored in zip(batch.tokens, batch.scored, strict=True):
            yield tokens[: int(scored.nonzero()[-1])]
