"""What became of a paper's claims: each is judged from our numbers by one rule.

A claim makes comparisons: rows that are said to be better, each against rows that are said to be
worse, in some columns. A comparison counts where the means differ by more than twice the standard
error of their difference, and by more than the unit's least (`milepost.report.results.differ`).

    seen here              every comparison comes out as the paper has it
    contradicted here      more than half of them come out the other way
    not seen here          anything in between
    not testable here      what it is about was not measured, or cannot be at this scale
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from milepost.report.results import Results, mean_and_spread
from milepost.study.study import Claim, Column, Table

Verdict = Literal["seen here", "not seen here", "contradicted here", "not testable here"]


@dataclass(frozen=True)
class Judged:
    """A claim, what became of it, and why."""

    claim: Claim
    verdict: Verdict
    why: str


def judged(results: Results) -> list[Judged]:
    """Every claim of the study."""
    return [judge(results, claim) for claim in results.study.claims]


def judge(results: Results, claim: Claim) -> Judged:
    """What became of a claim."""
    if claim.why_not:
        return Judged(claim, "not testable here", claim.why_not)
    columns = looked_at(results, claim)
    if claim.within is not None:
        return _reaches(results, claim, columns, claim.within)
    outcomes = {
        f"{better} and {worse} in {_where(table, column)}": results.ahead(column, better, worse)
        for table, column in columns
        for better in claim.better
        for worse in claim.worse
    }
    known = [outcome for outcome in outcomes.values() if outcome is not None]
    if len(known) < len(outcomes):
        return Judged(claim, "not testable here", "two seeds of each of its rows are needed")
    wanted = 0 if claim.same else 1
    right = sum(outcome == wanted for outcome in known)
    turned = [
        place
        for place, outcome in outcomes.items()
        if (outcome != 0 if claim.same else outcome == -1)
    ]
    why = f"{right} of {counted(len(known), 'comparison')} bear it out"
    if turned:
        why += f", {len(turned)} {'differ' if claim.same else 'go the other way'}"
        why += f" ({'; '.join(turned)})" if len(turned) <= 6 else ""
    return Judged(claim, _verdict(right, 0 if claim.same else len(turned), len(known)), why)


def looked_at(results: Results, claim: Claim) -> list[tuple[Table, Column]]:
    """The columns that a claim is about."""
    found = [
        (table, column)
        for table in results.study.tables
        for column in table.columns
        if table.name in claim.columns or f"{table.name}/{column.title}" in claim.columns
    ]
    assert found, f"{results.study.name}: no column for {claim.text!r}"
    return found


def _reaches(
    results: Results, claim: Claim, columns: Sequence[tuple[Table, Column]], limit: float
) -> Judged:
    shown, right = [], 0
    for table, column in columns:
        for row in claim.better:
            entry = results.entry(column, row)
            if entry.mean is None:
                return Judged(claim, "not testable here", f"{row} was not measured")
            right += entry.mean >= limit if table.unit.higher else entry.mean <= limit
            values = mean_and_spread(entry.values, table.unit)
            shown.append(f"{row} {values} in {_where(table, column)}")
    return Judged(claim, _verdict(right, 0, len(shown)), "; ".join(shown))


def _verdict(right: int, turned: int, of: int) -> Verdict:
    if right == of:
        return "seen here"
    return "contradicted here" if turned > of / 2 else "not seen here"


def _where(table: Table, column: Column) -> str:
    return f"{table.title}, {column.title}"


def counted(count: int, noun: str) -> str:
    """`1 comparison`, `2 comparisons`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
