"""Table 9 of the TAPE paper: MMLU and ARC after extending the context of Llama-2 7B.

Zhu et al. (arXiv 2501.00712), appendix B: the models of its Table 2, by lm-eval. `tape-table2` at
paper scale makes such models, `milepost retrofit` and training of one's own others. They are given
as folders, with lm-eval's tasks on this machine:

    milepost study tape-table9 --scale paper --settings lora=DIR tape=DIR include_path=DIR

Without include_path, lm-eval takes the tasks that come with it, and may download their data.

Where the paper leaves room:
- How many examples stand before a question is not said: as the task says unless num_fewshot is
  given.
- ARC's score here is the accuracy by likelihood per character (acc_norm), MMLU's the plain one; the
  paper names neither. Results keep both.
- What stands behind ± is lm-eval's standard error over the questions.
"""

from milepost.study.harness.study import ARM, PROBE, HarnessStudy
from milepost.study.study import ACCURACY, Claim, Column, Figure, Table

_TITLES = {
    "mmlu_humanities": "Humanities",
    "mmlu_social_sciences": "Social Sciences",
    "mmlu_stem": "STEM",
    "mmlu_other": "Other",
    "arc_challenge": "ARC Challenge",
    "arc_easy": "ARC Easy",
}

_PAPER = {
    "lora": (39.09, 46.47, 33.65, 45.83, 45.31, 74.28),
    "longlora": (37.53, 43.55, 32.54, 43.84, 45.31, 74.16),
    "theta": (37.45, 43.16, 33.05, 44.64, 45.65, 74.24),
    "tape": (37.96, 45.40, 33.27, 45.06, 46.25, 74.16),
}
_ERRORS = {
    "lora": (0.69, 0.88, 0.83, 0.89, 1.45, 0.90),
    "longlora": (0.69, 0.88, 0.83, 0.88, 1.45, 0.90),
    "theta": (0.69, 0.88, 0.83, 0.88, 1.46, 0.90),
    "tape": (0.69, 0.88, 0.83, 0.88, 1.46, 0.90),
}

STUDY = HarnessStudy(
    name="tape-table9",
    title="MMLU and ARC after extending the context",
    paper="Zhu et al., Contextualized Equivariant Positional Encoding (2025), Table 9",
    link="https://arxiv.org/abs/2501.00712",
    rows=tuple(_PAPER),
    arms=(),
    tasks=tuple(_TITLES),
    tables=(
        Table(
            ARM,
            "lm-eval",
            "accuracy",
            tuple(
                Column(
                    title,
                    ARM,
                    task,
                    "score",
                    "Table 9",
                    {
                        row: Figure(values[place], _ERRORS[row][place])
                        for row, values in _PAPER.items()
                    },
                    PROBE,
                )
                for place, (task, title) in enumerate(_TITLES.items())
            ),
            ACCURACY,
        ),
    ),
    claims=(
        Claim(
            "TAPE is slightly below LoRA on MMLU and consistently above LongLoRA and theta scaling",
            "appendix B",
            why_not=(
                "models of 7B parameters would have to be trained; of folders that are given, the "
                "standard errors say what differs"
            ),
        ),
        Claim(
            "On ARC's Challenge subset TAPE has a significant advantage",
            "appendix B; 46.25 ± 1.46 beside 45.65 ± 1.46 is within one standard error",
            why_not="the same",
        ),
    ),
    remarks=(
        "In brackets behind the paper's figures are its standard errors over questions, as ours in "
        "the second table.",
    ),
    seeds=1,
    paper_seeds=1,
)
