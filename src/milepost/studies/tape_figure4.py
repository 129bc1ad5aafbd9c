"""Figure 4 of the TAPE paper: addition again, with half the digits.

Zhu et al. (arXiv 2501.00712), appendix B: trained to 20 digits and tested to 40, "easier for the
model to learn". What `tape-figure2` says of the rows holds here too.
"""

from milepost.studies.tape_figure2 import HEAT, ROWS, arm, table
from milepost.study.study import Claim, Figure, Study

STUDY = Study(
    name="tape-figure4",
    title="Addition to twice the length, shorter",
    paper="Zhu et al., Contextualized Equivariant Positional Encoding (2025), Figure 4",
    link="https://arxiv.org/abs/2501.00712",
    minutes=6,
    rows=ROWS,
    arms=(arm(2, 20, steps=800),),
    tables=(
        table(
            "Figure 4, average over the heat map",
            {
                "rope": Figure(26.12),
                "randomized": Figure(26.12),
                "fire": Figure(39.44),
                "tape": Figure(41.42),
            },
        ),
    ),
    pictures=(HEAT,),
    claims=(
        Claim(
            "TAPE outperforms FIRE, by a small margin",
            "appendix B, Figure 4",
            ("addition/whole grid",),
            better=("tape",),
            worse=("fire",),
        ),
        Claim(
            "FIRE and TAPE are ahead of RoPE and randomised positions",
            "Figure 4",
            ("addition/whole grid",),
            better=("tape", "fire"),
            worse=("rope", "randomized"),
        ),
    ),
)
