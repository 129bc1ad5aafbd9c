"""What became of a paper's claims: the verdicts, and the one rule by which they are given.

A claim makes comparisons, and of each the kind of study says how it came out.

    seen here              every comparison comes out as the paper has it
    contradicted here      more than half of them come out the other way
    not seen here          anything in between
    not testable here      what it is about was not measured, or cannot be at this scale
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from milepost.wording import counted

FEW_SEEDS = "two seeds of each of its rows are needed"

Verdict = Literal["seen here", "not seen here", "contradicted here", "not testable here"]


class Statement(Protocol):
    """What the claims of every kind of study have."""

    @property
    def text(self) -> str:
        """In the paper's words or close to them."""

    @property
    def where(self) -> str:
        """It is printed."""

    @property
    def question(self) -> bool:
        """Whether no paper says so, and a reader asks."""


@dataclass(frozen=True)
class Judged:
    """A claim, what became of it, and why."""

    claim: Statement
    verdict: Verdict
    why: str

    def __str__(self) -> str:
        verdict = self.verdict.capitalize()
        return f"{verdict}: {self.claim.text} ({self.claim.where}): {self.why}."


def untestable(claim: Statement, why: str) -> Judged:
    """The verdict on a claim that nothing here bears on."""
    return Judged(claim, "not testable here", why)


def verdict(outcomes: Iterable[int]) -> Verdict:
    """By the comparisons: 1 as the claim has it, -1 the other way round, 0 neither."""
    found = [*outcomes]
    if found.count(1) == len(found):
        return "seen here"
    return "contradicted here" if 2 * found.count(-1) > len(found) else "not seen here"


def borne_out(held: int, of: int) -> str:
    """`1 of 2 comparisons bears it out`."""
    return f"{held} of {counted(of, 'comparison')} {'bears' if 1 in (held, of) else 'bear'} it out"


def folded(judged: Iterable[Judged]) -> tuple[list[Judged], list[str]]:
    """The claims that have a line of their own, and one line of those that lack a second seed.

    They have it where several lack one and no claim is judged, as after a run with one seed.
    """
    claims = [*judged]
    few = [one.claim for one in claims if one.why == FEW_SEEDS]
    if len(few) < 2 or any(one.verdict != "not testable here" for one in claims):
        return claims, []
    named = "; ".join(f"{claim.text} ({claim.where})" for claim in few)
    line = f"Not testable here: {len(few)} claims need two seeds of each row: {named}."
    return [one for one in claims if one.why != FEW_SEEDS], [line]


def told(judged: Iterable[Judged]) -> list[str]:
    """What became of the claims, a line for each, or for several that lack a second seed."""
    own, line = folded(judged)
    return [*map(str, own), *line]
