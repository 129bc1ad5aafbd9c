"""Tables 3 and 4 of the CoPE paper: counting.

Golovneva, Wang, Weston, Sukhbaatar, "Contextual Position Encoding: Learning to Count What's
Important" (arXiv 2405.18719), section 5.3: test error in per cent of the one printed value, average
of 3 seeds. Table 3 trains with 1, 3 and 5 variables; Table 4 tests the models of 1 variable with
the weight of the idle operation changed from 50 to 100 (longer context) and to 10 (shorter). The
standard deviations of both come from Table 9. Table 4 has no row for absolute positions.
FoX and stick-breaking are in neither table, and stand here without a figure of the paper.
One token is asked for in each sequence, so the three error rates of a test set are one.
"""

from milepost.study.study import Arm, Claim, Column, Figure, Study, Table


def _variables(count: int, **paper: Figure) -> Column:
    return Column(
        f"{count} var",
        arm=f"counting-{count}",
        test_set="in",
        metric="token",
        source=f"Table 3, {count} var; spread from Table 9, {count} var",
        paper=paper,
    )


STUDY = Study(
    name="cope-table3",
    title="Counting",
    paper="Golovneva et al., Contextual Position Encoding (2024), Tables 3 and 4",
    link="https://arxiv.org/abs/2405.18719",
    minutes=28,
    rows=("absolute", "relative", "cope", "fox", "stick-breaking"),
    arms=(
        Arm("counting-1", "Counting, 1 variable", task="counting", settings={"variables": 1}),
        Arm("counting-3", "Counting, 3 variables", task="counting", settings={"variables": 3}),
        Arm("counting-5", "Counting, 5 variables", task="counting", settings={"variables": 5}),
    ),
    tables=(
        Table(
            name="variables",
            title="Counting",
            counted="wrong answers by number of variables",
            columns=(
                _variables(
                    1,
                    absolute=Figure(5.3, 0.8),
                    relative=Figure(1.1, 0.4),
                    cope=Figure(0.0, 0.0),
                ),
                _variables(
                    3,
                    absolute=Figure(67.6, 1.5),
                    relative=Figure(17.8, 7.8),
                    cope=Figure(1.2, 2.1),
                ),
                _variables(
                    5,
                    absolute=Figure(71.5, 1.5),
                    relative=Figure(22.4, 5.1),
                    cope=Figure(7.4, 8.5),
                ),
            ),
        ),
        Table(
            name="pass-weight",
            title="Counting, 1 variable",
            counted="wrong answers as idle operations grow or shrink",
            columns=(
                Column(
                    "in-domain",
                    arm="counting-1",
                    test_set="in",
                    metric="token",
                    source="Table 4, in-domain (w_pass = 50); spread from Table 9",
                    paper={"relative": Figure(1.1, 0.4), "cope": Figure(0.0, 0.0)},
                ),
                Column(
                    "OOD longer",
                    arm="counting-1",
                    test_set="pass x2",
                    metric="token",
                    source="Table 4, OOD longer context (w_pass = 100); spread from Table 9",
                    paper={"relative": Figure(8.8, 1.1), "cope": Figure(0.0, 0.0)},
                ),
                Column(
                    "OOD shorter",
                    arm="counting-1",
                    test_set="pass /5",
                    metric="token",
                    source="Table 4, OOD shorter context (w_pass = 10); spread from Table 9",
                    paper={"relative": Figure(34.1, 2.5), "cope": Figure(4.0, 4.1)},
                ),
            ),
        ),
    ),
    claims=(
        Claim(
            "The best performance on counting comes from CoPE",
            "section 5.3, Table 3",
            ("variables",),
            better=("cope",),
            worse=("absolute", "relative"),
        ),
        Claim(
            "... with a perfect score for one variable (here: up to 0.1 % wrong)",
            "section 5.3, Table 3",
            ("variables/1 var",),
            better=("cope",),
            within=0.1,
        ),
        Claim(
            "Absolute positions perform worse than relative ones",
            "section 5.3, Table 3",
            ("variables",),
            better=("relative",),
            worse=("absolute",),
        ),
        Claim(
            "With more or fewer idle operations CoPE generalises, relative positions poorly",
            "section 5.3, Table 4",
            ("pass-weight/OOD longer", "pass-weight/OOD shorter"),
            better=("cope",),
            worse=("relative",),
        ),
    ),
)
