"""A model and a text, as the page and the figures show them."""

from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from milepost.errors import UsageError
from milepost.look.tokens import class_of_character, token_classes
from milepost.look.trace import Trace, trace
from milepost.tasks.task import Task
from milepost.tasks.text import BYTES, Text


@dataclass(frozen=True, eq=False)
class Subject:
    """What one model did with one text.

    Attributes:
        title: what is looked at, as in "cope, flip-flop".
        trace: of its S tokens.
        texts: the text of each token.
        classes: which tokens are of a class, by its name; each token is of one class.
    """

    title: str
    trace: Trace
    texts: tuple[str, ...]
    classes: Mapping[str, Bool[Tensor, " S"]]


def of_task(title: str, model: nn.Module, task: Task, tokens: Tensor) -> Subject:
    """A model with tokens of a task, whose vocabulary they are of.

    Raises:
        UsageError: the model cannot be traced (`milepost.look.trace`).
    """
    traced, vocab = trace(model, tokens), task.vocab
    row = traced.tokens.cpu()
    if vocab == BYTES:
        texts = [chr(b) if b < 0x80 else rf"\x{b:02x}" for b in row.tolist()]
    elif isinstance(task, Text):
        # of the tokens of one character the last stands for it
        decoder = getincrementaldecoder("utf-8")("replace")
        texts = [decoder.decode(task.bytes_of(token)) for token in row[:, None]]
    else:
        texts = [vocab[token] for token in row.tolist()]
    try:
        of_token = token_classes(task)
    except UsageError:  # a large vocabulary, as of words
        classes = _by_character(texts)
    else:
        classes = {name: members[row] for name, members in of_token.items() if members[row].any()}
    return Subject(title, traced, tuple(texts), classes)


def of_text(title: str, model: nn.Module, tokens: Tensor, texts: Sequence[str]) -> Subject:
    """A model with tokens of any kind, sorted by the characters that they begin with.

    Raises:
        UsageError: as `of_task`, or there is not one text for each token.
    """
    traced = trace(model, tokens)
    if len(texts) != len(traced.tokens):
        raise UsageError(
            f"texts must be one for each of the {len(traced.tokens)} tokens, got {len(texts)}: "
            f"give what each of them stands for"
        )
    return Subject(title, traced, tuple(texts), _by_character(texts))


def _by_character(texts: Sequence[str]) -> dict[str, Tensor]:
    names = [class_of_character(text.lstrip(" ")[:1] or text[:1]) for text in texts]
    return {name: torch.tensor([other == name for other in names]) for name in dict.fromkeys(names)}
