"""Table 7 and Figure 5 of the CoPE paper: flip-flop with models of many shapes.

Golovneva et al. 2024 (arXiv 2405.18719), appendix C: dimension, layers and heads varied for
absolute positions, RoPE and CoPE; hard attention; CoPE with a small network in place of its table,
in all layers or in the first alone; CoPE-ALiBi with slopes of three sets and with learned ones.
Rows with a deviation are of three seeds, the others of one. Figure 5 has the errors of some of them
while training.

At mini scale the sizes are a quarter of the paper's in dimension (64 and 32 for 256 and 128).
"""

from milepost.study.study import Arm, Claim, Column, Figure, Picture, Row, Study, Table

_SIZES = tuple((dim, layers, heads) for dim in (256, 128) for heads in (4, 2) for layers in (4, 2))
_DIMENSION = {256: 64, 128: 32}

# by dimension, layers, heads
_PAPER: dict[str, dict[tuple[int, int, int], tuple[Figure, Figure]]] = {
    "absolute": {
        (256, 4, 4): (Figure(6.8, 6.9), Figure(21.7, 7.9)),
        (256, 2, 4): (Figure(11.1), Figure(10.6)),
        (256, 4, 2): (Figure(0.1), Figure(18.0)),
        (256, 2, 2): (Figure(13.9), Figure(31.5)),
        (128, 4, 4): (Figure(5.4), Figure(24.8)),
        (128, 2, 4): (Figure(0.08), Figure(19.9)),
        (128, 4, 2): (Figure(0.07), Figure(16.5)),
        (128, 2, 2): (Figure(19.1), Figure(28.6)),
    },
    "rope": {
        (256, 4, 4): (Figure(1.8, 3.1), Figure(20.3, 2.9)),
        (256, 2, 4): (Figure(5.1), Figure(14.7)),
        (256, 4, 2): (Figure(0.02), Figure(19.0)),
        (256, 2, 2): (Figure(5.4), Figure(19.8)),
        (128, 4, 4): (Figure(0.1), Figure(8.9)),
        (128, 2, 4): (Figure(0.1), Figure(18.2)),
        (128, 4, 2): (Figure(0.02), Figure(17.3)),
        (128, 2, 2): (Figure(14.4), Figure(25.2)),
    },
    "cope": {
        (256, 4, 4): (Figure(0.03, 0.06), Figure(4.9, 4.4)),
        (256, 2, 4): (Figure(0.0), Figure(13.2)),
        (256, 4, 2): (Figure(0.0), Figure(3.0)),
        (256, 2, 2): (Figure(0.0), Figure(14.6)),
        (128, 4, 4): (Figure(0.2), Figure(33.2)),
        (128, 2, 4): (Figure(0.03), Figure(22.3)),
        (128, 4, 2): (Figure(0.03), Figure(14.5)),
        (128, 2, 2): (Figure(0.02), Figure(24.5)),
    },
}

_VARIANTS: dict[str, tuple[Row, Figure, Figure]] = {
    row.name: (row, inside, outside)
    for row, inside, outside in (
        (
            Row("absolute, hard attention", "absolute", model={"hard_attention": True}),
            Figure(50.7),
            Figure(49.1),
        ),
        (Row("cope-mlp", "cope-mlp"), Figure(0.03), Figure(5.9)),
        (
            Row("cope-mlp, first layer", "cope-mlp", {"first_layer_only": True}),
            Figure(0.9),
            Figure(24.3),
        ),
        (
            Row("cope-alibi, from 1", "cope-alibi", {"slopes": "halving", "first": 1.0}),
            Figure(0.0, 0.0),
            Figure(11.4, 3.4),
        ),
        (
            Row("cope-alibi, from 1/4", "cope-alibi", {"slopes": "halving", "first": 0.25}),
            Figure(0.0, 0.0),
            Figure(8.7, 7.6),
        ),
        (
            Row("cope-alibi, from 1/16", "cope-alibi", {"slopes": "halving", "first": 0.0625}),
            Figure(0.0, 0.0),
            Figure(17.1, 1.5),
        ),
        (
            Row("cope-alibi, learned", "cope-alibi", {"slopes": "learned"}),
            Figure(0.0, 0.0),
            Figure(11.4, 4.0),
        ),
    )
}


def _name(encoding: str, dim: int, layers: int, heads: int) -> str:
    return f"{encoding} {dim}, {layers}/{heads}"


def _row(encoding: str, dim: int, layers: int, heads: int) -> Row:
    shape = {"layers": layers, "heads": heads}
    return Row(
        _name(encoding, dim, layers, heads),
        encoding,
        at={
            "mini": {"model": {**shape, "dim": _DIMENSION[dim]}},
            "paper": {"model": {**shape, "dim": dim}},
        },
    )


def _figures(which: int) -> dict[str, Figure]:
    shapes = {
        _name(encoding, *size): figures[which]
        for encoding, sizes in _PAPER.items()
        for size, figures in sizes.items()
    }
    variants = {name: (inside, outside) for name, (_, inside, outside) in _VARIANTS.items()}
    return {**shapes, **{name: figures[which] for name, figures in variants.items()}}


_ALIBI = tuple(name for name in _VARIANTS if name.startswith("cope-alibi"))
_COPE = tuple(_name("cope", *size) for size in _SIZES)


_FIGURE_5 = (
    "absolute 256, 4/4",
    "rope 256, 4/4",
    "cope 256, 4/4",
    "cope-mlp",
    "cope-alibi, from 1/4",
)

STUDY = Study(
    name="cope-table7",
    title="Flip-flop with models of many shapes",
    paper="Golovneva et al., Contextual Position Encoding (2024), Table 7 and Figure 5",
    link="https://arxiv.org/abs/2405.18719",
    minutes=26,
    rows=(
        *(_row(encoding, *size) for encoding in _PAPER for size in _SIZES),
        *(row for row, _, _ in _VARIANTS.values()),
    ),
    arms=(
        Arm(
            "flip-flop",
            "Flip-flop",
            task="flip-flop",
            training={"evaluate_on": ("in", "sparse")},
            test_sets=("in", "sparse"),
        ),
    ),
    tables=(
        Table(
            "flip-flop",
            "Flip-flop",
            "wrong bits after a read",
            (
                Column(
                    "in-dist",
                    "flip-flop",
                    "in",
                    "token",
                    "Table 7, In-dist. test error",
                    _figures(0),
                ),
                Column(
                    "OOD", "flip-flop", "sparse", "token", "Table 7, OOD test error", _figures(1)
                ),
            ),
        ),
    ),
    pictures=(
        Picture(
            "history",
            "Convergence: in distribution",
            "flip-flop",
            metric="in",
            x="training step",
            y="error, %",
            rows=_FIGURE_5,
        ),
        Picture(
            "history",
            "Convergence: sparse",
            "flip-flop",
            metric="sparse",
            x="training step",
            y="error, %",
            rows=_FIGURE_5,
        ),
    ),
    claims=(
        Claim(
            "CoPE is robust to the shape in distribution: errors up to 0.2 %",
            "section 5.1, Table 7",
            ("flip-flop/in-dist",),
            better=_COPE,
            within=0.2,
        ),
        Claim(
            "With hard attention absolute positions do no better than chance",
            "Table 7",
            why_not="what its hard attention is, and how it is trained, the paper does not say",
        ),
        Claim(
            "CoPE with a network in the first layer alone is worse out of distribution",
            "appendix C",
            ("flip-flop/OOD",),
            better=("cope-mlp",),
            worse=("cope-mlp, first layer",),
        ),
        Claim(
            "CoPE-ALiBi solves the task in distribution (0.0, here: up to 0.05 %)",
            "Table 7",
            ("flip-flop/in-dist",),
            better=_ALIBI,
            within=0.05,
        ),
        Claim(
            "... and lags behind CoPE out of distribution, slightly",
            "appendix C",
            ("flip-flop/OOD",),
            better=(_name("cope", 256, 4, 4),),
            worse=_ALIBI,
        ),
        Claim(
            "CoPE converges faster, with its lowest errors at 2500 of 10,000 steps",
            "appendix C, Figure 5",
            why_not="the errors while training are drawn, and no rule judges curves",
        ),
    ),
    remarks=(
        "At mini scale the row names keep the paper's dimensions: 256 is 64 and 128 is 32.",
        "The paper has one seed for most rows: its figures without a deviation are single runs.",
        "Eq. 10 adds m·p with positive slopes, which favours what is far. Here fixed slopes are "
        "subtracted, as ALiBi's are; learned ones find their own sign.",
    ),
)
