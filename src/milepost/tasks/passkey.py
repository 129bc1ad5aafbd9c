"""Passkey retrieval: a number said twice somewhere in a long text of nothing is asked for.

The prompt is these five lines, the garbage being as many characters as needed of "The grass is
green. The sky is blue. The sun is yellow. Here we go. There and back again.", over and over:

    There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. I
        will quiz you about the important information there.      (one line)
    ⟨garbage, the first p characters⟩
    The pass key is 71432. Remember it. 71432 is the pass key.
    ⟨garbage from its beginning, the first n − p characters⟩
    What is the pass key? The pass key is

Source: Mohtashami and Jaggi 2023 (Landmark Attention, arXiv:2305.16300), in the words of the code
of LongLoRA (Chen et al. 2023, arXiv:2309.12307), which TAPE (Zhu et al. 2025, arXiv:2501.00712)
uses too.

Where they leave room, and where we differ:
- Keys. That code draws from 1 to 49,999, so that one key in five is shorter, and easier. Here all
  have five digits, from 10000 to 99999.
- Length. It cuts the garbage by characters and states how many tokens come out on average. Here
  the tokens of the prompt are exact, whatever the model's tokens are.
- Depth. It draws p uniformly. `trials` has a grid: depth d has p = round(d · n), from 0, the
  beginning, to 1, the end. The task, which is there to train on, draws p uniformly from 0 to n.
- Trials. LongLoRA has 10 for each length, TAPE 20. Here there are 100 for each length and depth
  unless told otherwise, with distinct keys, and each share has a 95 % interval (Wilson 1927).
- The answer. They generate as many tokens as the key has, in TAPE by whatever decoding was saved
  with the model, and compare ids. Here decoding is greedy and the text is compared: white space,
  then the five digits. What follows the digits is looked at in neither.

`trials` and `score` test any model on text, with any tokeniser. The task `passkey` is the same
prompt in bytes, for training a model from nothing; the space before the answer is given, its digits
are scored. Small models do not learn it in minutes. `short` is for them: the same garbage, and of
the other lines no more than "key 71432." and "key".
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from milepost.errors import UsageError
from milepost.shapes import check_tensor, shape
from milepost.tasks.task import KEY_LIMIT, Batch, Task, TestSet, is_whole, keyed_generator
from milepost.tasks.text import BYTES

DESCRIPTION = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. "
    "I will quiz you about the important information there."
)
GARBAGE = (
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
)
KEY_LINE = "The pass key is {key}. Remember it. {key} is the pass key."
QUESTION = "What is the pass key? The pass key is"
SHORT_KEY_LINE, SHORT_QUESTION = "key {key}.", "key"
DIGITS = 5
FIRST_KEY, KEYS = 10 ** (DIGITS - 1), 9 * 10 ** (DIGITS - 1)
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)

Encode = Callable[[str], Sequence[int]]
Decode = Callable[[Sequence[int]], str]
Generate = Callable[[Tensor, int], Tensor]
"""From a prompt's tokens (1, S) and a count to at most so many new ones (1, ≤ count)."""


def prompt(key: str, before: int, after: int) -> str:
    """The prompt with so many characters of garbage before the key's line and after it."""
    lines = (DESCRIPTION, garbage(before), KEY_LINE.format(key=key), garbage(after), QUESTION)
    return "\n".join(lines)


def garbage(count: int) -> str:
    """The first `count` characters of the garbage."""
    sentences = f"{GARBAGE} "
    return (sentences * (count // len(sentences) + 1))[:count]


def short_prompt(key: str, before: int, after: int) -> str:
    """The same with the short lines, and without the first."""
    lines = (garbage(before), SHORT_KEY_LINE.format(key=key), garbage(after), SHORT_QUESTION)
    return "\n".join(lines)


FRAME, SHORT_FRAME = (
    len(form("0" * DIGITS, 0, 0)) + len(" ") + DIGITS for form in (prompt, short_prompt)
)
"""The bytes of a prompt without garbage, with its answer."""

SHORTEST_IN_LONGLORA = 3072
"""Characters of garbage: ⌊3750 / 1024⌋ · 1024, meant for 1000 tokens."""


def fitted(encode: Encode, length: int, depth: float, key: str) -> str:
    """The prompt of exactly `length` tokens whose key lies at `depth`, from 0 to 1.

    Args:
        encode: a tokeniser, from text to token ids; what it adds (a first token) is counted.
        length: of the prompt in those tokens.
        depth: the share of the garbage that stands before the key.
        key: the digits.

    Raises:
        UsageError: the prompt is longer than that without any garbage, or no cut of the garbage
            gives exactly so many tokens.
    """
    number = isinstance(depth, int | float) and not isinstance(depth, bool)
    if not number or not 0 <= depth <= 1:
        raise UsageError(f"depth must be from 0, the beginning, to 1, the end, got {depth!r}")
    if not is_whole(length, 1):
        raise UsageError(f"length must be a whole number of tokens above 0, got {length!r}")

    def cut(count: int) -> str:
        before = round(depth * count)
        return prompt(key, before, count - before)

    def tokens(count: int) -> int:
        return len(encode(cut(count)))

    low, few = 0, tokens(0)
    if few > length:
        raise UsageError(
            f"length must be at least {few} tokens, which a prompt without garbage has, got "
            f"{length}: take longer prompts"
        )
    high, many = _first_too_long(tokens, length, few)
    steps = 0
    while few != length and high - low > 1:
        # The garbage repeats, so tokens grow almost evenly with characters; halving is for the rest
        share = (length - few) / (many - few) if steps % 2 == 0 else 0.5
        middle = min(max(low + round(share * (high - low)), low + 1), high - 1)
        count = tokens(middle)
        if count <= length:
            low, few = middle, count
        else:
            high, many = middle, count
        steps += 1
    if few == length:
        return cut(low)
    # A cut within a word may make more tokens than one after it, so that a step is skipped there
    for near in range(1, 2 * len(GARBAGE)):
        for count in (low - near, low + near):
            if count >= 0 and tokens(count) == length:
                return cut(count)
    raise UsageError(
        f"length: no cut of the garbage makes a prompt of exactly {length} tokens with this "
        f"tokeniser at depth {depth}: take {length - 1} or {length + 1}"
    )


def _first_too_long(tokens: Callable[[int], int], length: int, few: int) -> tuple[int, int]:
    """A number of characters of garbage that make too many tokens, and how many."""
    sample = 8 * (len(GARBAGE) + 1)
    each = sample / max(1, tokens(sample) - few)
    count = math.ceil(each * (length - few)) + sample
    many = tokens(count)
    while many <= length:
        count, fewer = 2 * count, many
        many = tokens(count)
        if many == fewer:
            raise UsageError(
                f"encode gives {many} tokens however long the prompt is, and length is {length}: "
                f"switch its truncation off"
            )
    return count, many


@dataclass(frozen=True)
class Trial:
    """A prompt and the key that it asks for."""

    prompt: str
    key: str
    length: int
    depth: float


def trials(
    encode: Encode,
    lengths: Iterable[int],
    *,
    depths: Iterable[float] = DEPTHS,
    count: int = 100,
    seed: int = 0,
) -> list[Trial]:
    """`count` prompts of each length at each depth, with as many keys.

    The keys of a length and depth depend on nothing but those and the seed; fewer trials are the
    first of more.
    """
    if not is_whole(count, 1) or count > KEYS:
        raise UsageError(f"count must be from 1 to {KEYS}, as many keys there are, got {count!r}")
    if not is_whole(seed, 0) or seed >= KEY_LIMIT:
        raise UsageError(f"seed must be an int from 0 to {KEY_LIMIT - 1}, got {seed!r}")
    found = []
    for length, depth in product(lengths, depths):
        rng = keyed_generator("passkey", seed, f"trials {length} {float(depth)}", 0)
        found += [
            Trial(fitted(encode, length, depth, key), key, length, float(depth))
            for key in map(str, FIRST_KEY + rng.permutation(KEYS)[:count])
        ]
    return found


@dataclass(frozen=True)
class Score:
    """How many keys of how many were found."""

    right: int
    trials: int

    @property
    def share(self) -> float:
        """Of the keys that were found."""
        return self.right / self.trials

    @property
    def interval(self) -> tuple[float, float]:
        """The share's 95 % interval (Wilson 1927): it stays within 0 and 1, and is never empty."""
        return wilson(self.right, self.trials)

    def __add__(self, other: "Score") -> "Score":
        """Both taken together."""
        return Score(self.right + other.right, self.trials + other.trials)


def wilson(right: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """(p̂ + z²/2n ± z √(p̂(1 − p̂)/n + z²/4n²)) / (1 + z²/n), p̂ = right / n, n = trials."""
    share, square = right / trials, z * z / trials
    middle = (share + square / 2) / (1 + square)
    half = z * math.sqrt(share * (1 - share) / trials + square / (4 * trials)) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


def score(
    asked: Iterable[Trial],
    generate: Generate,
    *,
    encode: Encode,
    decode: Decode,
    count: int = DIGITS + 3,
    device: str | torch.device = "cpu",
) -> dict[tuple[int, float], Score]:
    """How often the model's answer is the key, by length and depth.

    Args:
        asked: from `trials`, with the same `encode`.
        generate: writes on greedily: `functools.partial(milepost.generate.generate, model)`, or
            `greedy(model)` for any function from tokens to logits.
        encode: the tokeniser of the trials.
        decode: from token ids to text.
        count: how many tokens are written, enough for a space and the digits.
        device: where the model is.
    """
    scores: dict[tuple[int, float], Score] = {}
    for trial in asked:
        tokens = torch.tensor([list(encode(trial.prompt))], device=device)
        new = generate(tokens, count)
        check_tensor("what generate returns", new)
        if new.ndim != 2 or len(new) != 1 or new.shape[1] > count:
            raise UsageError(
                f"generate must return the new tokens alone, (1, at most {count}), got "
                f"{shape(new)}: cut off the prompt"
            )
        found = Score(int(is_answer(decode(new[0].tolist()), trial.key)), 1)
        cell = trial.length, trial.depth
        scores[cell] = scores[cell] + found if cell in scores else found
    return scores


def is_answer(text: str, key: str) -> bool:
    """Whether a continuation of the prompt begins with the key, after white space if any."""
    return re.match(rf"\s*{re.escape(key)}", text) is not None


def greedy(logits: Callable[[Tensor], Tensor]) -> Generate:
    """Write the likeliest token, again and again, reading all of the text each time.

    `logits` is any function from tokens (1, S) to logits (1, S, V).
    """

    @torch.inference_mode()
    def generate(tokens: Tensor, count: int) -> Tensor:
        text = tokens
        for _ in range(count):
            text = torch.cat((text, logits(text)[:, -1:].argmax(-1)), dim=1)
        return text[:, tokens.shape[1] :]

    return generate


@dataclass(frozen=True)
class Passkey(Task):
    """Find the key, in bytes.

    Settings: `length`, the bytes of the prompt and its answer. By default those of LongLoRA's
    shortest prompt; its longest is the test set "length x8", or a little less. `short`, whether
    the lines around the garbage are.

    The end of an example, with the scored digits marked:

        T h e ␣ p a s s ␣ k e y ␣ i s ␣ 7 1 4 3 2
                                        ^ ^ ^ ^ ^
    """

    name: ClassVar[str] = "passkey"
    paper: ClassVar[str] = "Mohtashami and Jaggi 2023, arXiv:2305.16300, as in arXiv:2309.12307"
    headline: ClassVar[Literal["token", "sequence", "last"]] = "sequence"

    length: int = FRAME + SHORTEST_IN_LONGLORA
    short: bool = False

    def __post_init__(self) -> None:
        """Reject what the lines alone do not fit into."""
        self.expect("short", isinstance(self.short, bool), "True or False")
        enough = is_whole(self.length, self.frame)
        self.expect("length", enough, f"an int of at least {self.frame}, the bytes without garbage")

    @property
    def frame(self) -> int:
        """The bytes without garbage."""
        return SHORT_FRAME if self.short else FRAME

    @property
    def vocab(self) -> tuple[str, ...]:
        """The 256 bytes."""
        return BYTES

    @property
    def max_length(self) -> int:
        """Every sequence has the same length."""
        return self.length

    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw the keys and where in the garbage they lie."""
        count = self.length - self.frame
        said = short_prompt if self.short else prompt
        keys = FIRST_KEY + rng.integers(KEYS, size=size)
        before = rng.integers(count + 1, size=size)
        rows = [
            f"{said(str(key), first, count - first)} {key}".encode()
            for key, first in zip(keys.tolist(), before.tolist(), strict=True)
        ]
        tokens = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(size, self.length)
        scored = torch.zeros(tokens.shape, dtype=torch.bool)
        scored[:, -DIGITS:] = True
        return Batch(torch.from_numpy(tokens.astype(np.int64)), scored)

    def test_sets(self) -> dict[str, TestSet]:
        """As trained, then up to the longest in the papers."""
        longer = {
            f"length x{factor}": self.altered(1000, f"{word} as long", length=factor * self.length)
            for factor, word in ((2, "twice"), (4, "four times"), (8, "eight times"))
        }
        return {"in": self.altered(1000, "as in training"), **longer}
