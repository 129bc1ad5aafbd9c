"""The seven tasks: what they are called, and how their answers are scored."""

from dataclasses import dataclass
from typing import Literal

from milepost.errors import unknown


@dataclass(frozen=True)
class Kind:
    """A task of SCROLLS.

    Attributes:
        title: what people are shown.
        metric: "f1", "exact_match" or "rouge", the geometric mean of ROUGE-1, ROUGE-2 and ROUGE-L.
        summary: whether it asks for a summary; the others ask a question, which their input begins
            with.
    """

    title: str
    metric: Literal["f1", "exact_match", "rouge"]
    summary: bool = False


KINDS = {
    "qasper": Kind("Qasper", "f1"),
    "contract_nli": Kind("ContractNLI", "exact_match"),
    "narrative_qa": Kind("NarrativeQA", "f1"),
    "quality": Kind("QuALITY", "exact_match"),
    "qmsum": Kind("QMSum", "rouge", summary=True),
    "summ_screen_fd": Kind("SummScreenFD", "rouge", summary=True),
    "gov_report": Kind("GovReport", "rouge", summary=True),
}
"""In the order of the TAPE paper's Table 1."""


def kind_of(task: str) -> Kind:
    """The task of that name."""
    if task not in KINDS:
        raise unknown("task of SCROLLS", task, KINDS)
    return KINDS[task]
