"""Figure 2 of the CoPE paper: counting, with less training data.

Golovneva et al. 2024 (arXiv 2405.18719), section 5.3: "CoPE outperforms relative PE on the counting
task, especially with less training data". The figure's numbers are not printed. At paper scale the
training sets have 1,000, 3,000 and 10,000 sequences, of which the last is Table 3's; every one is
trained for the same number of steps, so that a smaller set is seen more often.
"""

from milepost.study.study import Arm, Claim, Column, Study, Table

_SIZES = {"few": (250, 1_000), "some": (1_000, 3_000), "many": (4_000, 10_000)}


def _arm(name: str) -> Arm:
    mini, paper = _SIZES[name]
    return Arm(
        name,
        f"Counting, {name} sequences",
        "counting",
        settings={"variables": 1},
        at={
            "mini": {"training": {"train_sequences": mini, "steps": 500}},
            "paper": {"training": {"train_sequences": paper}},
        },
        test_sets=("in",),
    )


STUDY = Study(
    name="cope-figure2",
    title="Counting with less training data",
    paper="Golovneva et al., Contextual Position Encoding (2024), Figure 2",
    link="https://arxiv.org/abs/2405.18719",
    minutes=12,
    rows=("absolute", "relative", "cope", "fox"),
    arms=tuple(_arm(name) for name in _SIZES),
    tables=(
        Table(
            "size",
            "Counting",
            "wrong answers by size of the training set (mini: 250, 1000, 4000 sequences)",
            tuple(Column(name, name, "in", "token") for name in _SIZES),
        ),
    ),
    claims=(
        Claim(
            "CoPE outperforms relative positions on counting",
            "Figure 2",
            ("size",),
            better=("cope",),
            worse=("relative",),
        ),
        Claim(
            "... with the least training data, too",
            "Figure 2: especially with less training data",
            ("size/few",),
            better=("cope",),
            worse=("relative",),
        ),
    ),
)
