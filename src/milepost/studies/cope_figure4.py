"""Figures 4 and 6 of the CoPE paper: attention by position alone, and the gates behind it.

Golovneva et al. 2024 (arXiv 2405.18719), section 5.4: a model of Wikitext-103 with gates from keys
of their own (sep-keys). Attention that the positions alone would give, divided by its largest
weight, drops at newlines in one head and at section titles in another: the heads count paragraphs
and sections. Here the gates of every head are set against classes of tokens, and the heads whose
logits position moves most are drawn. Code is not in the figures.
"""

from milepost.study.language import PROBES
from milepost.study.study import (
    Arm,
    Claim,
    Column,
    Picture,
    Probe,
    Row,
    Study,
    Table,
    Unit,
)

_CORRELATION = Unit("largest |correlation| over heads", higher=True, least=0.02, decimals=2)
_CLASSES = ("newline", "space", "sentence end", "letter")
_EXAMPLE = Probe("picture", {"mini": {"length": 96}, "paper": {"length": 96}})


def _arm(name: str, title: str) -> Arm:
    return Arm(name, title, "text", recipe=name, test_sets=(), probes=(*PROBES, _EXAMPLE))


STUDY = Study(
    name="cope-figure4",
    title="What the gates of a language model count",
    paper="Golovneva et al., Contextual Position Encoding (2024), Figures 4 and 6",
    link="https://arxiv.org/abs/2405.18719",
    minutes=6,
    rows=(Row("sep-keys", "cope", {"sep_keys": True}), "cope"),
    arms=(_arm("prose", "Prose"), _arm("code", "Code")),
    tables=tuple(
        Table(
            arm,
            title,
            "how closely some head's gates follow a class of tokens",
            tuple(Column(name, arm, "best", name, probe="gates") for name in _CLASSES),
            _CORRELATION,
        )
        for arm, title in (("prose", "Prose"), ("code", "Code"))
    ),
    pictures=tuple(
        Picture("example", f"{title}: {what}", arm, "picture", metric, "key", "query")
        for arm, title in (("prose", "Prose"), ("code", "Code"))
        for metric, what in (
            ("gates", "gates"),
            ("position_weights", "attention by position alone"),
        )
    ),
    claims=(
        Claim(
            "Some head counts paragraphs: its gates follow line ends (here: |correlation| 0.3)",
            "section 5.4, Figures 4 and 6",
            ("prose/newline",),
            better=("sep-keys",),
            within=0.3,
        ),
    ),
)
