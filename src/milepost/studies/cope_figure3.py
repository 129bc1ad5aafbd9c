"""Figure 3 of the CoPE paper: language models that read more than they were trained on.

Golovneva et al. 2024 (arXiv 2405.18719), section 5.4: trained on Wikitext-103 with 1024 (left) and
512 tokens (right), tested on longer ones. The figure's numbers are not printed; what its text says
of them is. Relative positions have no vector for unseen distances; *relative-capped* gives these
that of the longest one. Windows do not overlap.
"""

from milepost.study.language import PROBES, at, by_position, by_window, prose
from milepost.study.study import PERPLEXITY, Arm, Claim, Study, Table


def _table(arm: str, title: str) -> Table:
    return Table(
        arm,
        title,
        "perplexity of a token by window",
        tuple(at(factor, arm=arm) for factor in (1, 2, 4, 8)),
        PERPLEXITY,
    )


_HALF = Arm(
    "half",
    "Prose, half the length",
    "text",
    recipe="prose",
    at={
        "mini": {"settings": {"length": 64}, "training": {"batch": 32}},
        "paper": {"settings": {"length": 512}, "training": {"batch": 128}},
    },
    test_sets=(),
    probes=PROBES,
)

STUDY = Study(
    name="cope-figure3",
    title="Language models on longer text than in training",
    paper="Golovneva et al., Contextual Position Encoding (2024), Figure 3",
    link="https://arxiv.org/abs/2405.18719",
    minutes=12,
    rows=("relative", "relative-capped", "rope", "cope", "fox", "stick-breaking"),
    arms=(prose(), _HALF),
    tables=(
        _table("prose", "Trained at T"),
        _table("half", "Trained at half of it"),
    ),
    pictures=(
        by_window(title="Trained at T"),
        by_window("half", "Trained at half of it"),
        by_position(title="Trained at T: loss by position"),
        by_position("half", "Trained at half of it: loss by position"),
    ),
    claims=(
        Claim(
            "Relative positions generalise poorly to longer contexts: capped ones are better",
            "section 5.4, Figure 3",
            ("prose/2 T", "prose/4 T", "prose/8 T", "half/2 T", "half/4 T", "half/8 T"),
            better=("relative-capped",),
            worse=("relative",),
        ),
        Claim(
            "CoPE outperforms relative-capped on longer contexts",
            "section 5.4, Figure 3",
            ("prose/2 T", "prose/4 T", "prose/8 T", "half/2 T", "half/4 T", "half/8 T"),
            better=("cope",),
            worse=("relative-capped",),
        ),
        Claim(
            "... also at the trained length",
            "Figure 3's caption; for T and relative positions also Table 5",
            ("prose/T", "half/T"),
            better=("cope",),
            worse=("relative-capped", "relative"),
        ),
    ),
    remarks=(
        "`relative` past its table: distances beyond the trained ones get no vector, as in the "
        "paper.",
    ),
)
