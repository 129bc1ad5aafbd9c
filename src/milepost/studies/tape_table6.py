"""Tables 6 and 7 of the TAPE paper: what TAPE's parts are worth, and how wide its update is.

Zhu et al. (arXiv 2501.00712), appendix B: perplexity on the GitHub part of the Pile after training
on C4, in windows from an eighth of the trained length up. How each ablation is read where the paper
leaves room, `docs/decisions/tape-paper-and-code.md` says. The rows are the paper's equations; those
of the released variant stand below.

At mini scale the models are trained and tested on the same kind of prose; the paper's are tested on
code that they were not trained on.
"""

from milepost.study.language import at, by_window, prose
from milepost.study.study import PERPLEXITY, Claim, Figure, Row, Study, Table

_WINDOWS = (0.125, 0.25, 0.5, 1)

_PAPER = {
    "rope": (139.2, 92.8, 69.3, 57.2),
    "feed forward alone": (143.3, 95.0, 70.7, 58.4),
    "attention alone": (142.7, 94.3, 70.1, 57.6),
    "tape": (132.0, 86.6, 63.9, 52.2),
    "no tensors": (138.4, 91.3, 67.8, 55.7),
    "not equivariant": (132.9, 87.8, 65.4, 54.1),
    "B′ = 12": (133.2, 87.9, 65.2, 53.6),
    "B′ = 24": (133.0, 86.1, 63.2, 51.8),
    "B′ = 96": (133.2, 87.5, 64.5, 52.7),
    "B′ = 192": (133.0, 87.3, 64.5, 53.0),
}

_RELEASED = {"variant": "released"}

STUDY = Study(
    name="tape-table6",
    title="What TAPE's parts are worth",
    paper="Zhu et al., Contextualized Equivariant Positional Encoding (2025), Tables 6 and 7",
    link="https://arxiv.org/abs/2501.00712",
    minutes=23,
    rows=(
        "rope",
        Row("feed forward alone", "tape", {"update": "mlp"}),
        Row("attention alone", "tape", {"update": "attention"}),
        "tape",
        Row("no tensors", "tape", {"form": "vector"}),
        Row("not equivariant", "tape", {"equivariant": False}),
        Row("released", "tape", _RELEASED),
        Row("released, feed forward alone", "tape", {**_RELEASED, "update": "mlp"}),
        Row("released, attention alone", "tape", {**_RELEASED, "update": "attention"}),
        *(Row(f"B′ = {width}", "tape", {"hidden": width}) for width in (12, 24, 96, 192)),
    ),
    arms=(prose(recipe="pretraining"),),
    tables=(
        Table(
            "prose",
            "TAPE",
            "perplexity of a token by window (the paper's T = 1024)",
            tuple(
                at(
                    factor,
                    source="Tables 6 and 7",
                    paper={name: Figure(values[i]) for name, values in _PAPER.items()},
                )
                for i, factor in enumerate(_WINDOWS)
            ),
            PERPLEXITY,
        ),
    ),
    pictures=(by_window(),),
    claims=(
        Claim(
            "TAPE has the lowest perplexity at every window",
            "Table 6",
            ("prose",),
            better=("tape",),
            worse=("rope", "feed forward alone", "attention alone"),
        ),
        Claim(
            "Removing either update raises perplexity above that of RoPE",
            "appendix B",
            ("prose",),
            better=("rope",),
            worse=("feed forward alone", "attention alone"),
        ),
        Claim(
            "Without equivariance results are worse",
            "appendix B",
            ("prose",),
            better=("tape",),
            worse=("not equivariant",),
        ),
        Claim(
            "With vectors in place of tensors perplexity is higher",
            "appendix B",
            ("prose",),
            better=("tape",),
            worse=("no tensors",),
        ),
        Claim(
            "There is no significant difference between values of B′ (to 3 %, as in the table)",
            "appendix B, Table 7",
            ("prose",),
            better=("tape",),
            worse=tuple(f"B′ = {width}" for width in (12, 24, 96, 192)),
            same=0.03,
        ),
    ),
    remarks=("The paper has one seed, of models that are not public.",),
)
