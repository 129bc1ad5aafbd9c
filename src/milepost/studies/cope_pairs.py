"""Whether CoPE helps beside a token-based encoding, every pair: a reader's question.

Table 5 of the CoPE paper (arXiv 2405.18719) has two: CoPE with relative positions was its best on
prose, and CoPE with RoPE no better than CoPE alone on code. Here every token-based encoding, but
those that only stretch or cap another for longer text, is trained alone and with CoPE beside it, on
prose.
"""

from milepost.study.language import at, by_window, prose
from milepost.study.study import PERPLEXITY, Claim, Study, Table

TOKEN_BASED = (
    "absolute",
    "sinusoidal",
    "relative",
    "rope",
    "xpos",
    "alibi",
    "t5",
    "kerple",
    "fire",
    "randomized",
)

STUDY = Study(
    name="cope-pairs",
    title="CoPE beside ten token-based encodings",
    paper="A reader's question of Golovneva et al. (2024), Table 5",
    link="https://arxiv.org/abs/2405.18719",
    minutes=28,
    rows=("cope", *(row for name in TOKEN_BASED for row in (name, f"cope+{name}"))),
    arms=(prose(),),
    tables=(
        Table(
            "prose",
            "Prose",
            "perplexity of a token by window",
            tuple(at(factor) for factor in (1, 2, 4)),
            PERPLEXITY,
        ),
    ),
    pictures=(by_window(),),
    claims=tuple(
        Claim(
            f"CoPE helps beside {name}",
            "the reader's question",
            ("prose/T",),
            better=(f"cope+{name}",),
            worse=(name,),
            question=True,
        )
        for name in TOKEN_BASED
    )
    + tuple(
        Claim(
            f"{name} helps beside CoPE",
            "the reader's question",
            ("prose/T",),
            better=(f"cope+{name}",),
            worse=("cope",),
            question=True,
        )
        for name in TOKEN_BASED
    ),
)
