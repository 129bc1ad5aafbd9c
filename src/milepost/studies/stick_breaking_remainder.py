"""Stick-breaking attention: what becomes of what is left of the stick.

Tan et al., "Scaling Stick-Breaking Attention" (arXiv 2410.17980): the weights of the earlier keys
sum to less than one. The paper's equation drops the rest; in the authors' code the tests give it
to the token's own value, and the models to a learned vector, followed by a norm of each head.
"""

from milepost.study.language import at, by_window, prose
from milepost.study.study import PERPLEXITY, Arm, Column, Row, Study, Table

STUDY = Study(
    name="stick-breaking-remainder",
    title="What becomes of what is left of the stick",
    paper="Tan et al., Scaling Stick-Breaking Attention (2024)",
    link="https://arxiv.org/abs/2410.17980",
    minutes=10,
    rows=(
        "rope",
        "stick-breaking",
        Row("current value", "stick-breaking", {"remainder": "current"}),
        Row("learned vector, norm", "stick-breaking", {"remainder": "bias"}),
        Row(
            "current value, token itself first",
            "stick-breaking",
            {"remainder": "current", "attend_current": True},
        ),
    ),
    arms=(prose(), Arm("flip-flop", "Flip-flop", "flip-flop")),
    tables=(
        Table(
            "prose",
            "Prose",
            "perplexity of a token by window",
            tuple(at(factor) for factor in (1, 2, 4)),
            PERPLEXITY,
        ),
        Table(
            "flip-flop",
            "Flip-flop",
            "wrong bits after a read",
            (
                Column("in-dist", "flip-flop", "in", "token"),
                Column("OOD sparse", "flip-flop", "sparse", "token"),
            ),
        ),
    ),
    pictures=(by_window(),),
)
