"""The claims of a study that has tables, judged from what its cells measured.

A claim says that rows are better than others, each than each, in some columns: one row is if the
means differ by more than twice the standard error of their difference, and by more than the unit's
least (`milepost.report.results.differ`). Or it says that they are no worse, or alike, or that rows
reach a number. What follows from the comparisons is in `milepost.report.verdicts`.
"""

from __future__ import annotations

from collections.abc import Sequence

from milepost.report.results import Results, mean_and_spread
from milepost.report.verdicts import FEW_SEEDS, Judged, borne_out, untestable, verdict
from milepost.study.study import Claim, Column, Table
from milepost.wording import counted


def judged(results: Results) -> list[Judged]:
    """Every claim of the study."""
    return [judge(results, claim) for claim in results.study.claims]


def judge(results: Results, claim: Claim) -> Judged:
    """What became of a claim."""
    if claim.why_not:
        return untestable(claim, claim.why_not)
    columns = looked_at(results, claim)
    if claim.within is not None:
        return _reaches(results, claim, columns, claim.within)
    outcomes = {
        f"{better} and {worse} in {_where(table, column)}": results.ahead(
            column, better, worse, claim.same
        )
        for table, column in columns
        for better in claim.better
        for worse in claim.worse
    }
    known = [bears_out(claim, outcome) for outcome in outcomes.values() if outcome is not None]
    if len(known) < len(outcomes):
        return untestable(claim, FEW_SEEDS)
    turned = [
        place
        for place, outcome in outcomes.items()
        if (outcome != 0 if claim.same else outcome == -1)
    ]
    why = borne_out(known.count(1), len(known))
    if turned:
        words = ("differs", "differ") if claim.same else ("goes the other way", "go the other way")
        why += f", {counted(len(turned), *words)}"
        why += f" ({'; '.join(turned)})" if len(turned) <= 6 else ""
    return Judged(claim, verdict(known), why)


def bears_out(claim: Claim, ahead: int) -> int:
    """1 if a comparison comes out as the claim has it, -1 the other way round, 0 neither."""
    if claim.same:  # of being alike nothing is the other way round
        return int(ahead == 0)
    return 1 if claim.no_worse and ahead == 0 else ahead


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
    shown, reached = [], []
    for table, column in columns:
        for row in claim.better:
            entry = results.entry(column, row)
            if len(entry.values) < 2 or entry.mean is None:
                return untestable(claim, FEW_SEEDS)
            reached.append(entry.mean >= limit if table.unit.higher else entry.mean <= limit)
            values = mean_and_spread(entry.values, table.unit)
            shown.append(f"{row} {values} in {_where(table, column)}")
    return Judged(claim, verdict(reached), "; ".join(shown))


def _where(table: Table, column: Column) -> str:
    return f"{table.title}, {column.title}"
