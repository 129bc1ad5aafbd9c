"""Table 8 of the CoPE paper: what CoPE's parts are worth in a language model.

Golovneva et al. 2024 (arXiv 2405.18719), appendix D: validation and test perplexity on
Wikitext-103, one change at a time. Its model shares one table of positions among all layers and has
p_max = 64 at T = 1024; here p_max is 31 at mini scale, a quarter of T = 128, and "16" is 7.
"""

from milepost.study.language import at, by_window, prose
from milepost.study.study import PERPLEXITY, Claim, Figure, Row, Study, Table

SHARED = {"shared": True}

_ROWS = (
    "absolute",
    Row("cope", "cope", SHARED),
    Row("val-gates", "cope", {**SHARED, "val_gates": True}),
    Row("sep-keys", "cope", {**SHARED, "sep_keys": True}),
    Row("tables of their own", "cope"),
    Row(
        "p_max low",
        "cope",
        SHARED,
        at={"mini": {"options": {"p_max": 7}}, "paper": {"options": {"p_max": 16}}},
    ),
    Row(
        "p_max = T",
        "cope",
        SHARED,
        at={"mini": {"options": {"p_max": 128}}, "paper": {"options": {"p_max": 1024}}},
    ),
    "cope-alibi",
)

STUDY = Study(
    name="cope-table8",
    title="What CoPE's parts are worth in a language model",
    paper="Golovneva et al., Contextual Position Encoding (2024), Table 8",
    link="https://arxiv.org/abs/2405.18719",
    minutes=7,
    rows=_ROWS,
    arms=(prose(),),
    tables=(
        Table(
            "prose",
            "Prose",
            "perplexity of a token in windows as long as in training",
            (
                at(
                    1,
                    "test",
                    source="Table 8, Test PPL; absolute from Table 5",
                    paper={
                        "absolute": Figure(24.87),
                        "cope": Figure(23.46),
                        "val-gates": Figure(23.33),
                        "sep-keys": Figure(23.18),
                        "tables of their own": Figure(23.58),
                        "p_max low": Figure(23.22),
                        "p_max = T": Figure(23.31),
                        "cope-alibi": Figure(25.09),
                    },
                ),
                at(4, "4 times as long"),
            ),
            PERPLEXITY,
        ),
    ),
    pictures=(by_window(),),
    claims=(
        Claim(
            "Gates from the values, or from keys of their own, slightly improve perplexity",
            "appendix D",
            ("prose/test",),
            better=("val-gates", "sep-keys"),
            worse=("cope",),
        ),
        Claim(
            "Sharing the positions among layers or not does not affect the performance much (1 %)",
            "appendix D",
            ("prose/test",),
            better=("tables of their own",),
            worse=("cope",),
            same=0.01,
        ),
        Claim(
            "Even p_max = 16 for 1024 tokens does not harm (here 7 for 128)",
            "appendix D",
            ("prose/test",),
            better=("p_max low",),
            worse=("cope",),
            no_worse=True,
        ),
        Claim(
            "The ALiBi version is worse than CoPE",
            "appendix D",
            ("prose/test",),
            better=("cope",),
            worse=("cope-alibi",),
        ),
        Claim(
            "... and roughly matches absolute positions (to 1 %)",
            "appendix D",
            ("prose/test",),
            better=("cope-alibi",),
            worse=("absolute",),
            same=0.01,
        ),
    ),
    remarks=(
        "The paper's figures are of one seed each; those that its text calls alike lie up to 0.9 % "
        "apart.",
    ),
)
