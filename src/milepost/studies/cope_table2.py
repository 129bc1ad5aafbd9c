"""Table 2 of the CoPE paper: flip-flop and selective copy.

Golovneva, Wang, Weston, Sukhbaatar, "Contextual Position Encoding: Learning to Count What's
Important" (arXiv 2405.18719), sections 5.1 and 5.2: test error in per cent, average of 3 seeds.
Table 2 prints one decimal and no spread; where the appendix prints the same run more finely, its
figures are used: Table 7 (flip-flop, dimension 256, 4 layers and 4 heads) and Table 10 (selective
copy). Standard deviations come from those two.

The flip-flop's OOD set of the paper "increases the distance to the last w by increasing the number
of ignore instructions": the sparse set of Liu et al. (2023), FFL(0.98). The dense set is theirs
too, and the paper gives no figure for it.
The paper does not say whether selective copy counts wrong tokens or wrong sequences. Guessing among
the tokens would be right now and then, so 100.0 (0.0) can only be sequences; this table counts
sequences, and the report lists the token errors too.
FoX, stick-breaking attention and TAPE are not in the paper's table: they are here for comparison.
"""

from milepost.study.study import Arm, Claim, Column, Figure, Study, Table

STUDY = Study(
    name="cope-table2",
    title="Flip-flop and selective copy",
    paper="Golovneva et al., Contextual Position Encoding (2024), Table 2",
    link="https://arxiv.org/abs/2405.18719",
    minutes=5,
    rows=("absolute", "rope", "cope", "fox", "stick-breaking", "tape"),
    arms=(
        Arm("flip-flop", "Flip-flop", task="flip-flop"),
        Arm("selective-copy", "Selective copy", task="selective-copy"),
    ),
    tables=(
        Table(
            name="flip-flop",
            title="Flip-flop",
            counted="wrong bits after a read",
            columns=(
                Column(
                    "in-dist",
                    arm="flip-flop",
                    test_set="in",
                    metric="token",
                    source="Table 2 left, In-dist; as in Table 7, 256 4/4, In-dist. test error",
                    paper={
                        "absolute": Figure(6.8, 6.9),
                        "rope": Figure(1.8, 3.1),
                        "cope": Figure(0.03, 0.06),
                    },
                ),
                Column(
                    "OOD sparse",
                    arm="flip-flop",
                    test_set="sparse",
                    metric="token",
                    source="Table 2 left, OOD; spread from Table 7, 256 4/4, OOD test error",
                    paper={
                        "absolute": Figure(21.7, 7.9),
                        "rope": Figure(20.3, 2.9),
                        "cope": Figure(4.9, 4.4),
                    },
                ),
                Column("dense", arm="flip-flop", test_set="dense", metric="token"),
                Column("length ×2", arm="flip-flop", test_set="length x2", metric="token"),
                Column("×2 sparse", arm="flip-flop", test_set="length x2 sparse", metric="token"),
            ),
        ),
        Table(
            name="selective-copy",
            title="Selective copy",
            counted="sequences with any wrong token",
            columns=(
                Column(
                    "in-dist",
                    arm="selective-copy",
                    test_set="in",
                    metric="sequence",
                    source="Table 2 right, In-dist; spread from Table 10, In-dist",
                    paper={
                        "absolute": Figure(16.9, 3.7),
                        "rope": Figure(40.1, 3.5),
                        "cope": Figure(0.0, 0.0),
                    },
                ),
                Column(
                    "OOD dense",
                    arm="selective-copy",
                    test_set="dense",
                    metric="sequence",
                    source="Table 2 right, OOD dense; spread from Table 10, OOD dense",
                    paper={
                        "absolute": Figure(25.6, 3.8),
                        "rope": Figure(100.0, 0.0),
                        "cope": Figure(0.0, 0.0),
                    },
                ),
                Column(
                    "OOD sparse",
                    arm="selective-copy",
                    test_set="sparse",
                    metric="sequence",
                    source="Table 2 right, OOD sparse; as in Table 10, OOD sparse",
                    paper={
                        "absolute": Figure(85.2, 8.4),
                        "rope": Figure(100.0, 0.0),
                        "cope": Figure(0.004, 0.006),
                    },
                ),
            ),
        ),
    ),
    claims=(
        Claim(
            "On flip-flop CoPE outperforms the others, in distribution",
            "section 5.1",
            ("flip-flop/in-dist",),
            better=("cope",),
            worse=("absolute", "rope"),
        ),
        Claim(
            "... and generalises to sequences with more ignored bits, which they fail to",
            "section 5.1",
            ("flip-flop/OOD sparse",),
            better=("cope",),
            worse=("absolute", "rope"),
        ),
        Claim(
            "On selective copy CoPE solves the task (here: up to 0.5 % wrong)",
            "section 5.2",
            ("selective-copy/in-dist",),
            better=("cope",),
            within=0.5,
        ),
        Claim(
            "... while others fail to do so",
            "section 5.2",
            ("selective-copy/in-dist",),
            better=("cope",),
            worse=("absolute", "rope"),
        ),
        Claim(
            "On dense and sparse sequences too, CoPE generalises better",
            "section 5.2",
            ("selective-copy/OOD dense", "selective-copy/OOD sparse"),
            better=("cope",),
            worse=("absolute", "rope"),
        ),
    ),
)
