"""What happens to CoPE when the count reaches p_max: a reader's question.

In the margin of the CoPE paper (arXiv 2405.18719), beside its section on longer contexts: "does it
generalize when the PE reaches T though?" Positions stop at p_max: keys beyond it look alike. Here
p_max goes from 8 to the trained length, and the share of visible keys at p_max is set beside the
perplexity, from half the trained length to four times it.
"""

from milepost.study.language import at, by_window, prose
from milepost.study.study import PERPLEXITY, Claim, Column, Picture, Row, Study, Table, Unit

_SHARE = Unit("%", 100.0)


def _row(name: str, mini: int, paper: int) -> Row:
    return Row(
        name,
        "cope",
        at={"mini": {"options": {"p_max": mini}}, "paper": {"options": {"p_max": paper}}},
    )


STUDY = Study(
    name="cope-saturation",
    title="What happens when CoPE's count reaches p_max",
    paper="A question in the margin of Golovneva et al. (2024), section 5.4",
    link="https://arxiv.org/abs/2405.18719",
    minutes=7,
    rows=(
        _row("p_max = T/16", 8, 64),
        _row("p_max = T/8", 16, 128),
        _row("p_max = T/4", 32, 256),
        _row("p_max = T/2", 64, 512),
        _row("p_max = T", 128, 1024),
    ),
    arms=(prose(),),
    tables=(
        Table(
            "perplexity",
            "Prose",
            "perplexity of a token by window",
            tuple(at(factor) for factor in (0.5, 1, 2, 4)),
            PERPLEXITY,
        ),
        Table(
            "saturated",
            "Prose",
            "share of the visible keys that lie at p_max, all heads",
            tuple(
                Column(
                    "T" if f == 1 else f"{f:g} T", "prose", f"x{f:g}", "share", probe="saturation"
                )
                for f in (0.5, 1, 2, 4)
            ),
            _SHARE,
        ),
    ),
    pictures=(
        by_window(),
        Picture(
            "curve",
            "Share of keys at p_max",
            "prose",
            "saturation",
            "share",
            "length, trained lengths",
            "share of visible keys",
        ),
    ),
    claims=(
        Claim(
            "A table as long as the training text reads four times as much as well as a short one",
            "the margin's question",
            ("perplexity/4 T",),
            better=("p_max = T",),
            worse=("p_max = T/16",),
            no_worse=True,
            question=True,
        ),
    ),
)
