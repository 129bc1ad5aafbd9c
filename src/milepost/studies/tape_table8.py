"""Table 8 of the TAPE paper: how much a model changes when positions move.

Zhu et al. (arXiv 2501.00712), appendix B: attention weights and dot products of positions, layer by
layer, after three tokens were put before the text, and after all position numbers were raised by
three. The paper does not say what its differences are measured by; here it is ‖A′ − A‖ / ‖A‖ in
the Frobenius norm, in per cent. RoPE and TAPE know distances alone, so that a shift of the numbers
moves them by rounding; TAPE without equivariance may move by more.
"""

from milepost.study.language import prose
from milepost.study.study import Claim, Column, Row, Study, Table, Unit

_CHANGE = Unit("%", 100.0, least=0.01)


def _columns(key: str, metric: str) -> tuple[Column, ...]:
    return tuple(
        Column(title, "prose", f"{key} {layer}", metric, probe="stability")
        for title, layer in (("first layer", "first layer"), ("last layer", "last layer"))
    )


STUDY = Study(
    name="tape-table8",
    title="Stability when positions move",
    paper="Zhu et al., Contextualized Equivariant Positional Encoding (2025), Table 8",
    link="https://arxiv.org/abs/2501.00712",
    minutes=8,
    rows=(
        "rope",
        "tape",
        Row("not equivariant", "tape", {"equivariant": False}),
        Row("released", "tape", {"variant": "released"}),
        "absolute",
        "cope",
        "fox",
    ),
    arms=(prose(recipe="pretraining"),),
    tables=(
        Table(
            "shift",
            "Numbers raised by three",
            "change of the attention weights",
            _columns("shift", "attention"),
            _CHANGE,
        ),
        Table(
            "shift-positions",
            "Numbers raised by three",
            "change of the positions' dot products",
            _columns("shift", "positions"),
            _CHANGE,
        ),
        Table(
            "tokens",
            "Three tokens put before",
            "change of the attention weights",
            _columns("tokens", "attention"),
            _CHANGE,
        ),
        Table(
            "tokens-positions",
            "Three tokens put before",
            "change of the positions' dot products",
            _columns("tokens", "positions"),
            _CHANGE,
        ),
    ),
    claims=(
        Claim(
            "TAPE keeps its attention under a shift as RoPE does (here: to 0.1 %)",
            "appendix B, Table 8",
            ("shift",),
            better=("rope", "tape"),
            within=0.1,
        ),
        Claim(
            "Without equivariance attention changes more, above all in deeper layers",
            "appendix B, Table 8",
            ("shift/last layer",),
            better=("tape",),
            worse=("not equivariant",),
        ),
        Claim(
            "With three tokens put before, TAPE's attention is as stable as RoPE's (to a third)",
            "appendix B, Table 8",
            ("tokens",),
            better=("tape",),
            worse=("rope",),
            same=1 / 3,
        ),
    ),
    remarks=(
        "In the first layer the positions of TAPE are RoPE's own.",
        "The paper's figures of layers 1 and 8 of 12, of RoPE, TAPE and TAPE without equivariance. "
        "Attention, in 10⁻²: 0.01, 0.01, 0.01 and 0.03, 0.04, 0.51 with numbers raised; 8.93, "
        "9.08, 11.30 and 11.46, 13.78, 14.55 with tokens put before. Dot products, in per cent: "
        "0.03, 0.03, 0.03 and 0.03, 0.04, 0.86 with numbers raised; 0.03, 0.03, 0.03 and 0.03, "
        "6.62, 6.37 with tokens put before. By what they are measured it does not say, so that "
        "they can be compared with ours in their order, not in size.",
    ),
)
