"""What a study of SCROLLS is: rows trained on a corpus, and then on each of the seven tasks.

Its arms are the tasks. A cell starts from the model of its row and seed, which is trained once by a
cell of its own (`milepost.study.scrolls.cell`) or given, goes on with the task's training split,
and answers the validation split. Nothing is downloaded: the data are given by their path.

Everything here is plain data and imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from milepost.errors import UsageError, unknown
from milepost.study.kinds import check_grid
from milepost.study.study import Arm, Study, Values

if TYPE_CHECKING:
    from milepost.study.scrolls.cell import ScrollsCell, StartCell

PROBE = "scrolls"
"""Under this name a result has its scores, as if a probe had found them."""

START = Arm("start", "Before", "text", recipe="pretraining", test_sets=())
"""What is trained before the tasks."""

_TEXTS = ("data", "starts", "corpus", "precision")
_NUMBERS = ("lr", "weight_decay")
_MAY_BE_ZERO = ("weight_decay", "warmup", "questions", "kept", "start_steps")


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """Everything that decides a cell's numbers, beside its row, task and seed.

    Attributes:
        data: the folder of SCROLLS (`milepost.scrolls.examples`).
        starts: a folder with a run of `milepost train` for each row, of its name; "" to train them.
        corpus: to train them on (`milepost.corpus`); the recipe's if "".
        tokens: of it: the size of a vocabulary or the path of a tokenizer.json; the recipe's if "".
        start_steps: how many steps; as many as the recipe says if 0.
        length: the most tokens of a prompt with its answer.
        answer: the most tokens of an answer to a question.
        summary: the most tokens of a summary.
        steps, lr, warmup, weight_decay: of the training on a task, by AdamW; the learning rate
            falls linearly.
        batch, accumulate: examples at once, and how many such batches are a step.
        precision: "fp32", or "bf16" in the model.
        questions: how many of the validation split are asked; all if 0.
        kept: how many answers a result keeps.
    """

    data: str = ""
    starts: str = ""
    corpus: str = ""
    tokens: int | str = ""
    start_steps: int = 0
    length: int
    answer: int
    summary: int
    steps: int
    lr: float
    warmup: int
    weight_decay: float = 0.01
    batch: int
    accumulate: int = 1
    precision: Literal["fp32", "bf16"] = "fp32"
    questions: int = 0
    kept: int = 4

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    def given(self, overrides: Mapping[str, Any]) -> FineTuning:
        """These with some replaced, as a command line has them."""
        known = [one.name for one in fields(self)]
        for name, value in overrides.items():
            if name not in known:
                raise unknown("setting", name, known)
            valid, expected = _checked(name, value)
            if not valid:
                raise UsageError(f"setting {name!r} must be {expected}, got {value!r}: change it")
        return replace(self, **overrides)


def _checked(name: str, value: Any) -> tuple[bool, str]:
    whole = isinstance(value, int) and not isinstance(value, bool)
    least = 0 if name in _MAY_BE_ZERO else 1
    if name == "precision":
        return value in ("fp32", "bf16"), "fp32 or bf16"
    if name == "tokens":
        return isinstance(value, str) or whole, "a number of tokens, or a path"
    if name in _TEXTS:
        return isinstance(value, str), "a path"
    if name in _NUMBERS:
        number = whole or isinstance(value, float)
        return number and (value > 0 or value == least), "a number above 0"
    return whole and value >= least, f"a whole number of at least {least}"


@dataclass(frozen=True)
class ScrollsStudy(Study):
    """A study of SCROLLS; `scales` are its settings."""

    scales: Mapping[str, FineTuning] = field(default_factory=dict)

    needs = "the files of SCROLLS: --settings data=DIR"
    report = "scrolls"

    def with_settings(self, overrides: Values) -> ScrollsStudy:
        """The study with other settings than its scales have."""
        return replace(self, overrides={**self.overrides, **overrides})

    def settings(self, scale: str) -> FineTuning:
        """The settings of a scale, with those that were given instead."""
        if scale not in self.scales:
            raise unknown("scale", scale, self.scales)
        return self.scales[scale].given(self.overrides)

    def cells(  # type: ignore[override]  # cells of another kind
        self, scale: str, encodings: Sequence[str], seeds: int
    ) -> list[StartCell | ScrollsCell]:
        """Every run of the grid: what is trained before, and each task that there are files of."""
        check_grid(self, encodings, seeds)
        settings = self.settings(scale)
        tasks = self.tasks(settings)
        arms = [START.name] * (not settings.starts) + tasks
        return [
            cell
            for seed in range(seeds)
            for arm in arms
            for encoding in dict.fromkeys(encodings)
            if (cell := self.cell(scale, arm, encoding, seed)) is not None
        ]

    def tasks(self, settings: FineTuning) -> list[str]:
        """The tasks that there are files of."""
        from milepost.scrolls.examples import available

        found = available(Path(settings.data)) if settings.data else ()
        if not found:
            got = f"{settings.data} without any" if settings.data else "no folder"
            raise UsageError(
                f"{self.name} reads the files of SCROLLS from this machine, and nothing is "
                f"downloaded: expected a folder with train.jsonl and validation.jsonl of a task, "
                f"as in DIR/qasper, got {got}: give it by --settings data=DIR"
            )
        return [arm.name for arm in self.arms if arm.name in found]

    def cell(  # type: ignore[override]  # cells of another kind
        self, scale: str, arm: str, encoding: str, seed: int
    ) -> StartCell | ScrollsCell | None:
        """The cell there, or None where there is none any more."""
        from milepost.study.scrolls.cell import ScrollsCell, StartCell

        settings = self.settings(scale)
        row = self.row(encoding)
        start = None
        if settings.starts == "":
            start = StartCell.of(scale, row, seed, settings)
        if arm == START.name:
            return start
        if arm not in {one.name for one in self.arms}:
            return None
        return ScrollsCell(row=row.name, task=arm, settings=settings, seed=seed, start=start)
