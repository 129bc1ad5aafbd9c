"""Results of a study that is no paper's, typed by hand."""

from milepost.report.folder import Cell
from milepost.report.results import Results
from milepost.study.study import (
    ACCURACY,
    PERPLEXITY,
    Arm,
    Column,
    Figure,
    Picture,
    Study,
    Table,
)


def study(claims=(), pictures=()):
    return Study(
        name="made-up",
        title="Made up",
        paper="Nobody (2026), Table 1",
        link="https://example.org",
        rows=("rope", "cope", "fox"),
        arms=(Arm("text", "Text", "text"), Arm("sums", "Sums", "addition", rows=("rope", "cope"))),
        tables=(
            Table(
                "text",
                "Text",
                "perplexity",
                (
                    Column(
                        "T",
                        "text",
                        "x1",
                        "perplexity",
                        "Table 1",
                        {"rope": Figure(4.0), "cope": Figure(3.0)},
                        probe="perplexity",
                    ),
                    Column("2 T", "text", "x2", "perplexity", probe="perplexity"),
                ),
                PERPLEXITY,
            ),
            Table(
                "sums",
                "Sums",
                "right",
                (Column("all", "sums", "mean", "accuracy", probe="addition_grid"),),
                ACCURACY,
            ),
        ),
        pictures=tuple(pictures),
        claims=tuple(claims),
    )


def results(found, *, claims=(), pictures=(), seeds=3, scale="mini"):
    """`found` has, by arm and row, what each seed's probes found; None is a failed cell."""
    cells = []
    for (arm, row), by_seed in found.items():
        for seed, probes in enumerate(by_seed):
            result = None if probes is None else {"errors": {}, "history": [], "probes": probes}
            failure = {"reason": "no room"} if probes is None else None
            cells.append(Cell(arm, row, seed, f"{len(cells):016x}", result, failure))
    return Results(
        study=study(claims, pictures),
        scale=scale,
        rows=("rope", "cope", "fox"),
        seeds=seeds,
        cells=tuple(cells),
        strays=0,
    )


def text(*perplexities, longer=None):
    """Three seeds' perplexities at T, and at 2 T."""
    longer = longer or perplexities
    return [
        {"perplexity": {"x1": {"perplexity": one}, "x2": {"perplexity": two}}}
        for one, two in zip(perplexities, longer, strict=True)
    ]


def sums(*accuracies):
    return [{"addition_grid": {"mean": {"accuracy": value}}} for value in accuracies]


def picture(kind, **values):
    return Picture(kind, "A picture", **{"arm": "text", **values})
