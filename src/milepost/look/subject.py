"""A model and a text, as the page and the figures show them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from milepost.errors import UsageError
from milepost.look.tokens import class_of_character, token_classes
from milepost.look.trace import Trace, trace
from milepost.tasks.task import Task
from milepost.tasks.text import BYTES


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
    if task.vocab == BYTES:
        texts = tuple(chr(b) if b < 0x80 else rf"\x{b:02x}" for b in tokens.tolist())
    else:
        texts = tuple(task.vocab[token] for token in tokens.tolist())
    try:
        of_token = token_classes(task)
    except UsageError:  # a large vocabulary, as of words
        return of_text(title, model, tokens, texts)
    classes = {name: members[tokens.cpu()] for name, members in of_token.items()}
    return Subject(title, trace(model, tokens), texts, _present(classes))


def of_text(title: str, model: nn.Module, tokens: Tensor, texts: Sequence[str]) -> Subject:
    """A model with tokens of any kind, sorted by the characters that they begin with."""
    names = [class_of_character(text.lstrip(" ")[:1] or text[:1]) for text in texts]
    classes = {
        name: torch.tensor([other == name for other in names]) for name in dict.fromkeys(names)
    }
    return Subject(title, trace(model, tokens), tuple(texts), classes)


def _present(classes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: members for name, members in classes.items() if members.any()}
