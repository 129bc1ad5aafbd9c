"""Figure 7 of the TAPE paper: where the last layer looks.

Zhu et al. (arXiv 2501.00712), appendix C: on one text of C4, of fewer than 100 tokens, RoPE keeps
0.30 of its attention on the token itself, TAPE 0.17. Here the weight on the diagonal is the mean
over the heads of the last layer and over several texts. The patterns of one text are drawn,
of RoPE and the two TAPEs, in an arm of their own: without that probe the other cells stay those of
other studies.
"""

from dataclasses import replace

from milepost.study.language import PROBES, prose
from milepost.study.study import Claim, Column, Figure, Picture, Probe, Row, Study, Table, Unit

_SHARE = Unit("share of attention", least=0.01, decimals=3)
_DISTANCE = Unit("tokens", higher=True, relative=0.02, decimals=1)

_PATTERN = Probe("picture", {"": {"length": 96, "heads": "last layer"}})
_PROSE = prose(recipe="pretraining")
_ONE_TEXT = replace(
    _PROSE,
    name="pattern",
    title="One text",
    probes=(*PROBES, _PATTERN),
    rows=("rope", "tape", "released"),
)

STUDY = Study(
    name="tape-figure7",
    title="Where the last layer looks",
    paper="Zhu et al., Contextualized Equivariant Positional Encoding (2025), Figure 7",
    link="https://arxiv.org/abs/2501.00712",
    minutes=12,
    rows=(
        "rope",
        "tape",
        Row("released", "tape", {"variant": "released"}),
        "cope",
        "fox",
        "stick-breaking",
        "alibi",
    ),
    arms=(_PROSE, _ONE_TEXT),
    tables=(
        Table(
            "diagonal",
            "Prose, last layer",
            "attention on the token itself",
            (
                Column(
                    "diagonal",
                    "prose",
                    "last",
                    "diagonal",
                    "Figure 7's text",
                    {"rope": Figure(0.30), "tape": Figure(0.17)},
                    probe="attention",
                ),
            ),
            _SHARE,
        ),
        Table(
            "distance",
            "Prose, last layer",
            "mean distance of what is attended to",
            (Column("distance", "prose", "last", "distance", probe="attention"),),
            _DISTANCE,
        ),
    ),
    pictures=(
        Picture(
            "example",
            "Attention in the last layer",
            "pattern",
            "picture",
            "weights",
            "key",
            "query",
        ),
    ),
    claims=(
        Claim(
            "RoPE predominantly focuses on the current position, TAPE less",
            "appendix C",
            ("diagonal",),
            better=("tape",),
            worse=("rope",),
        ),
        Claim(
            "TAPE attends to more contextual information over longer distances",
            "appendix C",
            ("distance",),
            better=("tape",),
            worse=("rope",),
        ),
    ),
)
