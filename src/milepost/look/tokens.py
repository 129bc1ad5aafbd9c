"""What the tokens of a task are, and which of its sequences a model is looked at with.

Token classes are what a head may have learned to count: instructions in flip-flop, blanks in
selective copy, statements in counting, newlines and ends of sentences in text.
"""

from collections.abc import Iterator
from dataclasses import fields, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from milepost.errors import UsageError, unknown
from milepost.tasks.task import Task, is_whole
from milepost.tasks.text import BYTES, Text
from milepost.tasks.text import encode as bytewise
from milepost.training.data import sequences

LARGEST = 64
"""A vocabulary of more tokens is not taken token by token."""

WINDOW = 512
"""Tokens of a text, unless another number is asked for."""

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
        names = [class_of_character(chr(byte) if byte < 0x80 else "") for byte in range(len(BYTES))]
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


def class_of_character(character: str) -> str:
    """What a character of a text is, in any script; an empty one is "other"."""
    if character in ("\n", " "):
        return "newline" if character == "\n" else "space"
    if character in (".", "!", "?", "。", "！", "？", "؟", "।"):
        return "sentence end"
    if character.isdigit():
        return "digit"
    return "letter" if character.isalpha() else "other"


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


def encode(task: Task, text: str) -> Int[Tensor, " S"]:
    """The tokens of a text, in the vocabulary of a task: bytes, or names between white space.

    Raises:
        UsageError: the vocabulary has no such name, or the text no token, or it is not Unicode.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the text must be Unicode, got half of a surrogate pair at character {error.start}: "
            f"read it as UTF-8"
        ) from error
    if isinstance(task, Text) and task.tokenizer is not None:
        tokens = task.tokenizer.encode(text, add_special_tokens=False).ids
    elif task.vocab == BYTES:
        tokens = bytewise(text)
    else:
        known = {name: token for token, name in enumerate(task.vocab)}
        for word in text.split():
            if word not in known:
                wrong = unknown(f"token of the {task.name} task", word, known)
                raise UsageError(f"{wrong}; tokens stand apart by spaces")
        tokens = [known[word] for word in text.split()]
    if not tokens:
        raise UsageError("text must have at least one token, got none: give one")
    return torch.tensor(tokens)


def sample(task: Task, length: int | None = None, sequence: int = 0) -> Int[Tensor, " S"]:
    """A sequence that nothing was trained on: of text, its test documents from the beginning.

    Args:
        task: whose it is.
        length: of the sequence, where that is a setting of the task; of text, 512 unless given.
        sequence: which of the test sequences, from 0 on; windows of text are side by side.

    Raises:
        UsageError: there is no such sequence.
    """
    if not is_whole(sequence, 0):
        raise UsageError(f"sequence must be a whole number from 0 on, got {sequence!r}: 0 is first")
    if not isinstance(task, Text):
        return list(read(at_length(task, length), sequence + 1))[sequence]
    length = WINDOW if length is None else length
    if not is_whole(length, 1):
        raise UsageError(f"length must be a whole number of tokens above 0, got {length!r}")
    window = task.text("test", (sequence + 1) * length)[sequence * length :]
    if len(window) < length:
        raise UsageError(
            f"sequence {sequence} of {length} tokens is not in the test documents of "
            f"{task.corpus!r}: choose an earlier one, or a shorter length"
        )
    return window.long()


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
