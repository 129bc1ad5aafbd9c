"""Figures 2 and 5 of the TAPE paper: addition, trained to n digits and tested to 2n.

Zhu et al., "Rethinking Addressing in Language Models via Contextualized Equivariant Positional
Encoding" (arXiv 2501.00712), section 4.1 and appendix B: share of sums that are right to the last
digit, over all pairs of operand lengths, those trained on included. The paper prints the mean of
each heat map.

Where we differ, or the paper leaves room (`docs/decisions/task-ambiguities.md` has it all):
- All rows have the same number of steps. The released scripts give TAPE four times RoPE's time.
- In the addition code that we could read, a commit before the one that the release pins, positions
  never reach TAPE's logits: the paper's figure may be of another model than its equations. Both
  variants are rows here.
- At mini scale three digits are trained on. Which encodings learn them in the given steps depends
  on the number of heads too: RoPE does at 4 and CoPE at 2 (seed 100).
- RandPE is RoPE in that code, and Figure 4 prints 26.12 % for both.
"""

from milepost.study.study import (
    ACCURACY,
    Arm,
    Claim,
    Column,
    Figure,
    Picture,
    Probe,
    Row,
    Study,
    Table,
)

ROWS = (
    "none",
    "rope",
    "randomized",
    "fire",
    "tape",
    Row("tape released", "tape", {"variant": "released"}),
    "cope",
    "fox",
    "stick-breaking",
)
YARN = Row("tape + yarn", "tape", {"initial": "yarn", "factor": 2.0})


def arm(mini: int, paper: int, **training: int) -> Arm:
    """Addition trained to so many digits, with a grid of twice as many; `training` at mini."""
    return Arm(
        "addition",
        "Addition",
        "addition",
        at={
            "mini": {"settings": {"digits": mini}, "training": training},
            "paper": {"settings": {"digits": paper}},
        },
        test_sets=("in",),
        probes=(
            Probe(
                "addition_grid",
                {
                    "mini": {"digits": 2 * mini, "samples": 32},
                    "paper": {"digits": 2 * paper, "samples": 100},
                },
            ),
        ),
    )


def table(source: str, paper: dict[str, Figure]) -> Table:
    """Means over the grid and its two parts."""

    def column(title: str, metric: str) -> Column:
        return Column(title, "addition", "mean", metric, probe="addition_grid")

    return Table(
        "addition",
        "Addition",
        "sums that are right to the last digit",
        (
            Column(
                "whole grid", "addition", "mean", "accuracy", source, paper, probe="addition_grid"
            ),
            column("lengths trained on", "in"),
            column("longer", "out"),
        ),
        ACCURACY,
    )


HEAT = Picture(
    "heat",
    "Sums that are right, by the operands' digits",
    "addition",
    "addition_grid",
    "right",
    "digits of the second operand",
    "digits of the first operand",
)

STUDY = Study(
    name="tape-figure2",
    title="Addition to twice the length",
    paper="Zhu et al., Contextualized Equivariant Positional Encoding (2025), Figures 2 and 5",
    link="https://arxiv.org/abs/2501.00712",
    minutes=17,
    rows=(*ROWS, YARN),
    arms=(arm(3, 40),),
    tables=(
        table(
            "Figures 2 and 5, average over the heat map",
            {
                "rope": Figure(26.32),
                "randomized": Figure(26.56),
                "none": Figure(22.45),
                "fire": Figure(26.98),
                "tape": Figure(32.82),
                "tape + yarn": Figure(33.92),
            },
        ),
    ),
    pictures=(HEAT,),
    claims=(
        Claim(
            "TAPE outperforms the others with the highest average accuracy",
            "section 4.1, Figure 2",
            ("addition/whole grid",),
            better=("tape",),
            worse=("rope", "randomized", "none", "fire"),
        ),
        Claim(
            "YaRN enhances the length extrapolation of TAPE",
            "appendix B, Figure 5",
            ("addition/longer",),
            better=("tape + yarn",),
            worse=("tape",),
        ),
        Claim(
            "the accuracies themselves",
            "Figures 2 and 5",
            why_not="they are of 120M parameters, 40 digits and 20,000 steps of 512 sums",
        ),
    ),
)
