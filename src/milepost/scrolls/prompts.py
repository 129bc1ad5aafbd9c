r"""What a model reads and writes: a prompt cut to a length, the answer, and a sign that it ends.

    a question       ⟨input⟩\nAnswer:                                           ⟨answer⟩\n###\n
    a summary        Context:\n⟨input⟩\n Please summarize this report:\nAnswer: ⟨answer⟩\n###\n

The input of a question begins with the question, so it is cut at its end. All of it together has at
most `length` tokens, whichever is asked, and answers are cut to a length of their own; a model is
trained on the answer and the sign alone.

Source: the code of TAPE (Zhu et al. 2025, arXiv:2501.00712), with 8192 tokens, answers of up to 200
and summaries of up to 1000. It has the tokenizer's own `<s>` and `</s>` where here is text: the
tokens that are made here have no special ones. And its cut keeps the last 7 tokens of the question
for a summary, here they are kept as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import torch

from milepost.cache import Cache
from milepost.errors import UsageError
from milepost.model import Decoder
from milepost.scrolls.examples import Example
from milepost.scrolls.kinds import kind_of
from milepost.tasks.task import Batch, Task, TestSet

BEFORE, AFTER = "Context:\n", "\n Please summarize this report:"
ANSWER, END = "\nAnswer: ", "\n###\n"


@dataclass(frozen=True)
class Prompts:
    """How examples of a task become tokens.

    Attributes:
        task: its name, as "qasper".
        encode: from text to token ids, without special ones.
        length: the most tokens of a prompt with its answer.
        answer: the most tokens of an answer without its end.
    """

    task: str
    encode: Callable[[str], list[int]]
    length: int
    answer: int
    end: tuple[int, ...] = field(init=False)
    before: tuple[int, ...] = field(init=False)
    after: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Make tokens of all that stands around an input, once."""
        summary = kind_of(self.task).summary
        tokens = {
            "end": END,
            "before": BEFORE if summary else "",
            "after": (AFTER if summary else "") + ANSWER,
        }
        for name, text in tokens.items():
            object.__setattr__(self, name, tuple(self.encode(text)))
        if self.room < 1:
            raise UsageError(
                f"length must be above {self.length - self.room} tokens, those around an input and "
                f"of an answer, got {self.length}: raise it, or shorten answers"
            )

    @property
    def room(self) -> int:
        """How many tokens of an input fit."""
        around = len(self.before) + len(self.after) + len(self.end)
        return self.length - self.answer - around

    def asked(self, text: str) -> list[int]:
        """What the model reads before it answers."""
        # tokens of text have far fewer characters: what will be cut off is not made tokens first
        read = self.encode(text[: 64 * self.room])[: self.room]
        return [*self.before, *read, *self.after]

    def answered(self, text: str) -> list[int]:
        """What it is to write."""
        return [*self.encode(text.strip())[: self.answer], *self.end]


@dataclass(frozen=True)
class Questions(Task):
    """The examples of a task to train on, drawn evenly, each right answer as one of its own.

    Settings: `prompts`, `vocabulary` (the number of tokens) and `examples`.
    """

    name: ClassVar[str] = "scrolls"
    paper: ClassVar[str] = "Shaham et al. 2022, arXiv:2201.03533"
    headline: ClassVar[Literal["token", "sequence", "last"]] = "token"

    prompts: Prompts
    vocabulary: int
    examples: tuple[Example, ...]

    @property
    def vocab(self) -> tuple[str, ...]:
        """The tokens' numbers."""
        return tuple(map(str, range(self.vocabulary)))

    @property
    def max_length(self) -> int:
        """Of a prompt with its answer."""
        return self.prompts.length

    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw examples; shorter ones are filled up on the right, where nothing is scored."""
        pairs = [(one.input, right) for one in self.examples for right in one.outputs]
        rows = [
            (self.prompts.asked(text), self.prompts.answered(right))
            for text, right in (pairs[place] for place in rng.integers(len(pairs), size=size))
        ]
        longest = max(len(asked) + len(answered) for asked, answered in rows)
        tokens = torch.zeros(size, longest, dtype=torch.int64)
        scored = torch.zeros(size, longest, dtype=torch.bool)
        for row, (asked, answered) in enumerate(rows):
            end = len(asked) + len(answered)
            tokens[row, :end] = torch.tensor(asked + answered)
            scored[row, len(asked) : end] = True
        return Batch(tokens, scored)

    def test_sets(self) -> dict[str, TestSet]:
        """None: answers are scored by what is written (`milepost.scrolls.metrics`)."""
        return {}


@torch.inference_mode()
def written(model: Decoder, prompt: Sequence[int], count: int, end: Sequence[int]) -> list[int]:
    """What the model writes greedily after a prompt: up to `end`, or `count` tokens.

    Args:
        model: in evaluation mode.
        prompt: at least one token.
        count: the most tokens that are written, `end` not counted.
        end: the tokens that end an answer; they are not returned.
    """
    device = next(model.parameters()).device
    cache, new = Cache(), list[int]()
    tokens = torch.tensor([list(prompt)], device=device)
    while len(new) < count + len(end):
        token = int(model(tokens, cache=cache)[0, -1].argmax())
        new.append(token)
        if new[-len(end) :] == list(end):
            return new[: -len(end)]
        tokens = torch.tensor([[token]], device=device)
    return new[:count]
