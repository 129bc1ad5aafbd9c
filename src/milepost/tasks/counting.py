"""Counting: what a variable holds after a program of resets, increments and passes.

A context is n ~ U{3..max_steps} statements, each drawn with weights 1 : 7 : w_pass from

    a = 0 ;     set a variable, uniform among all, to zero          4 tokens
    a ++;       add one to a variable, uniform among those set      2 tokens
    pass;       do nothing                                          1 token

An increment with no variable set yet, or beyond 10, is dropped and the whole statement drawn
again, kind included. `print a` then asks for a variable, uniform among those set, and one token
answers, 0 to 10. A context that sets no variable is drawn again whole, n included. Tokens are
the words between spaces.

Source: Golovneva et al. 2024 (CoPE, arXiv:2405.18719), section 5.3 and Tables 3 and 4, and the
generator published with it: max_steps 512, w_pass 50 (100 and 10 in Table 4), 1, 3 and 5
variables, 1000 test sequences, the last 512 tokens of each kept, and the answer alone scored.

Where the papers leave room:
- Trimming can cut the last assignment of the variable asked for, and with it the answer: in none
  of 10,000 sequences with one variable, in 16 with three, in 40 with five. The published data
  keeps those, and so does this; `trim` at 4 * max_steps + 3 keeps every token.
- Padding stands right of the answer, where a causal model never sees it, and is not scored.
- Table 4 changes w_pass at an unchanged max_steps, and so do "pass x2" and "pass /5".
- The "length" sets are in no paper: max_steps and trim grow by the same factor.
- One token is scored per sequence, so the three errors are the same number.
"""

from dataclasses import dataclass
from string import ascii_lowercase
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Int64

from milepost.tasks.task import Batch, Task, TestSet, is_whole

SET_WEIGHT, INCREMENT_WEIGHT = 1, 7
HIGHEST = 10
FEWEST_STEPS = 3
UNSET = -1

PAD, EQUALS, SEMICOLON, INCREMENT, PASS, PRINT, ZERO = range(7)  # ZERO + v is the token of v
WORDS = ("<pad>", "=", ";", "++;", "pass;", "print", *map(str, range(HIGHEST + 1)))
FIRST_VARIABLE = len(WORDS)

# Statements: variable v is set by ASSIGNMENT + 2 v and incremented by the one after that.
NO_STATEMENT, PASSING, ASSIGNMENT = range(3)


@dataclass(frozen=True)
class Counting(Task):
    """Count increments since the last reset.

    Settings: `variables`, `max_steps` (statements in a context), `pass_weight` (the paper's
    w_pass) and `trim` (the last so many tokens of a sequence are kept).

    An example, with the scored answer marked:

        pass; a = 0 ; pass; a ++; pass; pass; a ++; print a 2
                                                            ^
    """

    name: ClassVar[str] = "counting"
    paper: ClassVar[str] = "CoPE (Golovneva et al. 2024, arXiv:2405.18719), Tables 3 and 4"
    headline: ClassVar[Literal["token", "sequence", "last"]] = "token"

    variables: int = 1
    max_steps: int = 512
    pass_weight: int = 50
    trim: int = 512

    def __post_init__(self) -> None:
        """Reject settings that leave nothing to count, or no letter to name it by."""
        letters = len(ascii_lowercase)
        named = is_whole(self.variables, 1) and self.variables <= letters
        self.expect("variables", named, f"an int from 1 to {letters}, a letter each")
        enough = is_whole(self.max_steps, FEWEST_STEPS)
        self.expect("max_steps", enough, f"an int of at least {FEWEST_STEPS}")
        self.expect("pass_weight", is_whole(self.pass_weight, 1), "an int of at least 1")
        self.expect("trim", is_whole(self.trim, 7), "an int of at least 7, `a = 0 ; print a 0`")

    @property
    def vocab(self) -> tuple[str, ...]:
        """Padding, the words of the statements, the numbers and the variables."""
        return (*WORDS, *ascii_lowercase[: self.variables])

    @property
    def max_length(self) -> int:
        """That of nothing but assignments and the question, unless trimmed."""
        return min(4 * self.max_steps + 3, self.trim)

    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw the programs, ask for a variable, and lay the words out."""
        statements, values = self._programs(rng, size)
        asked = (rng.random(values.shape) * (values != UNSET)).argmax(axis=1)
        answer = values[np.arange(size), asked]
        question = np.stack([np.full(size, PRINT), FIRST_VARIABLE + asked, ZERO + answer], axis=1)
        words = self._statement_words()[statements].reshape(size, -1)
        return self._packed(np.concatenate([words, question], axis=1))

    def _programs(
        self, rng: np.random.Generator, size: int
    ) -> tuple[Int64[np.ndarray, "B n"], Int64[np.ndarray, "B V"]]:
        """The statements, as rows of `_statement_words`, and what the variables hold at the end."""
        rows = np.arange(size)
        steps, first_set = self._first_sets(rng, size)
        variable = rng.integers(self.variables, size=size)
        within = np.arange(steps.max()) < steps[:, None]
        statements = np.where(within, PASSING, NO_STATEMENT)
        statements[rows, first_set] = ASSIGNMENT + 2 * variable
        values = np.full((size, self.variables), UNSET)
        values[rows, variable] = 0

        # A pass neither fails nor changes anything. So instead of step by step we go from one
        # other statement to the next, and the passes in between are a geometric number.
        others = SET_WEIGHT + INCREMENT_WEIGHT
        other = others / (others + self.pass_weight)
        step = first_set + 1
        while (step < steps).any():
            step += np.minimum(rng.geometric(other, size) - 1, steps - step)
            sets = rng.random(size) < SET_WEIGHT / others
            eligible = sets[:, None] | (values != UNSET)
            variable = (rng.random(values.shape) * eligible).argmax(axis=1)
            value = np.where(sets, 0, values[rows, variable] + 1)
            done = (step < steps) & (value <= HIGHEST)  # one not done is dropped: step stays
            row, target = rows[done], variable[done]
            statements[row, step[done]] = ASSIGNMENT + 2 * target + ~sets[done]
            values[row, target] = value[done]
            step += done
        return statements, values

    def _first_sets(
        self, rng: np.random.Generator, size: int
    ) -> tuple[Int64[np.ndarray, " B"], Int64[np.ndarray, " B"]]:
        """How many statements each context has, and which of them first sets a variable.

        Up to there everything is a pass, increments being drawn again: so n statements set none
        with probability q^n, q = w_pass / (w_pass + w_set). Redrawing such contexts whole gives n
        the probability P(n) ∝ 1 - q^n, and the first assignment a geometric law cut off at n.
        """
        counts = np.arange(FEWEST_STEPS, self.max_steps + 1)
        log_q = -np.log1p(SET_WEIGHT / self.pass_weight)
        sets_any = -np.expm1(counts * log_q)
        steps = rng.choice(counts, size, p=sets_any / sets_any.sum())
        passes = np.log1p(-rng.random(size) * sets_any[steps - FEWEST_STEPS]) / log_q
        return steps, np.minimum(passes.astype(np.int64), steps - 1)

    def _statement_words(self) -> Int64[np.ndarray, "statement 4"]:
        """The words of every statement, padded: none, a pass, each assignment and increment."""
        words = [[PAD] * 4, [PASS, PAD, PAD, PAD]]
        for variable in range(FIRST_VARIABLE, self.vocab_size):
            words.append([variable, EQUALS, ZERO, SEMICOLON])
            words.append([variable, INCREMENT, PAD, PAD])
        return np.array(words)

    def _packed(self, words: Int64[np.ndarray, "B W"]) -> Batch:
        """The words without the padding among them, at most the last `trim` of each row."""
        size = len(words)
        place = np.cumsum(words != PAD, axis=1)
        lengths = np.minimum(place[:, -1], self.trim)
        place += (lengths - place[:, -1] - 1)[:, None]
        kept = (words != PAD) & (place >= 0)
        tokens = np.full((size, lengths.max()), PAD, dtype=np.int64)
        tokens[np.nonzero(kept)[0], place[kept]] = words[kept]
        scored = np.zeros(tokens.shape, dtype=bool)
        scored[np.arange(size), lengths - 1] = True
        return Batch(torch.from_numpy(tokens), torch.from_numpy(scored))

    def test_sets(self) -> dict[str, TestSet]:
        """Table 4's three pass weights, then longer contexts."""
        rarer = max(1, self.pass_weight // 5)
        return {
            "in": self.altered(1000, "as in training"),
            "pass x2": self.altered(
                1000,
                "twice the pass weight: resets lie further back",
                pass_weight=2 * self.pass_weight,
            ),
            "pass /5": self.altered(
                1000, "a fifth of the pass weight: resets lie nearer", pass_weight=rarer
            ),
            "length x2": self._longer(2, "up to twice the statements"),
            "length x4": self._longer(4, "up to four times the statements"),
        }

    def _longer(self, factor: int, about: str) -> TestSet:
        return self.altered(1000, about, max_steps=factor * self.max_steps, trim=factor * self.trim)
