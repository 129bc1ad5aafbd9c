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

Verdict = Literal["seen here", "not seen here", "contradicted here", "not testable here"]


class Statement(Protocol):
    """What the claims of every kind of study have."""

    @property
    def text(self) -> str:
        """In the paper's words or close to them."""

    @property
    def where(self) -> str:
        """It is printed."""


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


def counted(count: int, noun: str) -> str:
    """`1 comparison`, `2 comparisons`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
