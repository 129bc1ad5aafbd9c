"""The cell of a study by lm-eval: load a folder, score it on the tasks, write the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.errors import UsageError
from milepost.files import write_json
from milepost.study.harness.study import ARM, PROBE
from milepost.study.study import RESULT
from milepost.study.work import Described, Report, made, result_file

PREFERRED = ("acc_norm", "acc", "exact_match")
"""The first of these that a task has is its score, or else whatever it names first."""


@dataclass(frozen=True)
class HarnessCell(Described):
    """One model.

    Attributes:
        row: its name.
        folder: where it is.
        options: of `milepost eval`, with the tasks as a list.
    """

    row: str
    folder: str
    options: Mapping[str, Any]

    arm = ARM
    seed = 0
    cost = 1.0
    needs = None
    result_names = RESULT

    @property
    def encoding(self) -> str:
        """The name of its row, as study.json keeps it."""
        return self.row

    @property
    def label(self) -> str:
        return self.row

    def describe(self) -> dict[str, Any]:
        """Everything that decides its numbers."""
        return {"row": self.row, "folder": self.folder, "options": dict(self.options)}

    def run(
        self,
        directory: Path,
        *,
        report: Callable[[Report], None],
        stop: Callable[[], bool],
        device: str | None = None,
    ) -> None:
        """Score the model. lm-eval cannot be stopped: what it is at is finished, or lost."""
        began = time.monotonic()
        from milepost.hf import convert, evaluation

        options = dict(self.options)
        path = options.pop("include_path", None)
        names = options.pop("tasks")
        if not Path(self.folder).is_dir():
            raise UsageError(
                f"setting {self.row!r} must be a folder with a model, got {self.folder}, where "
                f"there is none: check the path"
            )
        evaluation.harness()
        report(Report(0.0, "looking for the tasks"))
        manager = evaluation.task_manager(names, None if path is None else Path(path))
        report(Report(0.01, "loading the model"))
        model, tokenizer = convert.load(Path(self.folder), device=device)
        report(Report(0.02, "answering"))
        found = evaluation.evaluate(
            model, tokenizer, manager.match_tasks(names), manager=manager, **options
        )
        if stop():
            return
        write_json(
            result_file(self, directory),
            {
                "arm": ARM,
                "row": self.row,
                "settings": self.describe(),
                "test_sets": {},
                "errors": {},
                "probes": {PROBE: scores_of(found)},
                "history": [],
                "seconds": round(time.monotonic() - began, 1),
                **made(model.device.type, lm_eval=evaluation.harness().__version__),
            },
        )


def scores_of(results: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """By task, the score with its standard error, and every metric with its own."""
    found: dict[str, dict[str, float]] = {}
    for task, metrics in results["results"].items():
        values = {
            key.removesuffix(",none"): float(value)
            for key, value in metrics.items()
            if "," in key and isinstance(value, int | float) and not isinstance(value, bool)
        }
        named = [name for name in PREFERRED if name in values]
        first = named or [name for name in values if "_stderr" not in name]
        if not first:
            continue
        score, _, chosen = first[0].partition(",")
        error = values.get(f"{score}_stderr,{chosen}" if chosen else f"{score}_stderr")
        found[task] = {"score": values[first[0]], **values}
        if error is not None:
            found[task]["error"] = error
    return found
