"""Table 5 of the CoPE paper: language models of prose and of code.

Golovneva, Wang, Weston, Sukhbaatar, "Contextual Position Encoding: Learning to Count What's
Important" (arXiv 2405.18719), sections 5.4 and 5.5: perplexity of a token on Wikitext-103 (GPT-2's
size, 1024 tokens, p_max = 64) and on private code (20M parameters, 4096 tokens).
FoX, stick-breaking attention and TAPE are not in the paper's table: they are here for comparison.
"""

from milepost.study.language import at, by_position, by_window, code, prose
from milepost.study.study import PERPLEXITY, Claim, Figure, Study, Table

_OTHERS = ("fox", "stick-breaking", "tape")

STUDY = Study(
    name="cope-table5",
    title="Language models of prose and code",
    paper="Golovneva et al., Contextual Position Encoding (2024), Table 5",
    link="https://arxiv.org/abs/2405.18719",
    minutes=16,
    rows=("absolute", "relative", "rope", "cope", "cope+relative", "cope+rope", *_OTHERS),
    arms=(prose(), code()),
    tables=(
        Table(
            "prose",
            "Prose",
            "perplexity of a token in windows as long as in training",
            (
                at(
                    1,
                    "test",
                    source="Table 5 left, Wikitext-103, Test PPL",
                    paper={
                        "absolute": Figure(24.87),
                        "relative": Figure(23.81),
                        "cope": Figure(23.46),
                        "cope+relative": Figure(23.23),
                    },
                ),
                at(4, "4 times as long"),
            ),
            PERPLEXITY,
        ),
        Table(
            "code",
            "Code",
            "perplexity of a token in windows as long as in training",
            (
                at(
                    1,
                    "test",
                    arm="code",
                    source="Table 5 right, Code, Test PPL",
                    paper={
                        "absolute": Figure(4.7),
                        "rope": Figure(4.1),
                        "cope": Figure(3.9),
                        "cope+rope": Figure(4.0),
                    },
                ),
                at(4, "4 times as long", arm="code"),
            ),
            PERPLEXITY,
        ),
    ),
    pictures=(
        by_window(title="Prose: perplexity by window"),
        by_position(title="Prose: loss by position"),
        by_window("code", "Code: perplexity by window"),
        by_position("code", "Code: loss by position"),
    ),
    claims=(
        Claim(
            "On prose absolute positions perform worst",
            "section 5.4",
            ("prose/test",),
            better=("relative", "cope", "cope+relative"),
            worse=("absolute",),
        ),
        Claim(
            "On prose CoPE outperforms relative positions",
            "section 5.4",
            ("prose/test",),
            better=("cope",),
            worse=("relative",),
        ),
        Claim(
            "CoPE improves even further when combined with relative positions",
            "section 5.4",
            ("prose/test",),
            better=("cope+relative",),
            worse=("cope", "relative"),
        ),
        Claim(
            "On code CoPE improves over absolute positions and RoPE",
            "section 5.5",
            ("code/test",),
            better=("cope",),
            worse=("absolute", "rope"),
        ),
        Claim(
            "On code RoPE and CoPE together improve over RoPE",
            "section 5.5",
            ("code/test",),
            better=("cope+rope",),
            worse=("rope",),
        ),
        Claim(
            "... but bring no improvement over CoPE (3.9 and 4.0)",
            "section 5.5",
            ("code/test",),
            better=("cope",),
            worse=("cope+rope",),
            no_worse=True,
        ),
        Claim(
            "the perplexities themselves",
            "Table 5",
            why_not="they are of Wikitext-103 in larger tokens (GPT-2's, going by the number of "
            "parameters) and of code that is not public",
        ),
    ),
    remarks=(
        "The paper's perplexities are of other tokens and other text: they can be compared with "
        "ours in the order of the rows, not in size.",
    ),
)
