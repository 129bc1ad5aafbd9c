"""One cell of a study of context extension: the base of a seed, or one row of it.

The base of a seed is trained once and kept in the study's folder, `bases/<hash>`, as transformers
keeps models. Its row measures it as it is; the other rows read it from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.study.extension.run import Run
from milepost.study.extension.study import ARM, BASE, MEASURED, Row, Settings
from milepost.study.work import Described, Report
from milepost.training.device import choose


@dataclass(frozen=True)
class ExtensionCell(Described):
    """The base of a seed, or one row of it."""

    row: Row
    settings: Settings
    seed: int

    arm = ARM
    result_names = MEASURED

    @property
    def encoding(self) -> str:
        """The name of its row, as study.json keeps it."""
        return self.row.name

    @property
    def label(self) -> str:
        return f"{self.row.name}, seed {self.seed}"

    def describe(self) -> dict[str, Any]:
        """Everything that decides its numbers."""
        row = {
            "name": self.row.name,
            "encoding": self.row.encoding,
            "encoding_options": dict(self.row.encoding_options),
            "rope": self.row.rope,
            "lora": self.row.lora,
            "lr_factor": self.row.lr_factor,
        }
        return {"row": row, "seed": self.seed, "settings": self.settings.to_dict()}

    @property
    def is_base(self) -> bool:
        return self.row.name == BASE

    @property
    def base(self) -> ExtensionCell:
        """The base that it extends."""
        row = Row(BASE, "the base as it is", rope="kept", lora=False)
        return ExtensionCell(row, self.settings, self.seed)

    @property
    def needs(self) -> ExtensionCell | None:
        """The cell that has to be finished before this one can begin."""
        return None if self.is_base else self.base

    def ready(self, directory: Path) -> bool:
        """Whether what other cells take from it is there, beside its result."""
        kept = not self.is_base or self.settings.checkpoint or self.base_folder(directory).exists()
        return bool(kept)

    def base_folder(self, directory: Path) -> Path:
        """Where the base of the cell's seed is."""
        if self.settings.checkpoint is not None:
            return Path(self.settings.checkpoint)
        return directory / "bases" / self.base.hash

    @property
    def training_cost(self) -> float:
        """About how much arithmetic the training is, in tokens read."""
        s = self.settings
        if not self.is_base:
            length = (s.length or 1) * s.factor
            return 3.0 * s.steps * s.accumulate * (s.texts + s.passkeys) * length
        if s.checkpoint is not None:
            return 0.0
        return (
            3.0 * s.base_steps * s.accumulate * s.factor * (s.texts + s.passkeys) * (s.length or 1)
        )

    @property
    def test_cost(self) -> float:
        """The same of the measurements."""
        s = self.settings
        asked = sum(s.passkey_lengths) * len(s.depths) * s.trials
        # one at a time, which leaves a processor half idle
        return 4.0 * s.test_tokens + 10.0 * asked

    @property
    def cost(self) -> float:
        return self.training_cost + self.test_cost

    def run(
        self,
        directory: Path,
        *,
        report: Callable[[Report], None],
        stop: Callable[[], bool],
        device: str | None = None,
    ) -> None:
        """Make the model, measure it and write the result, or leave a checkpoint on `stop`."""
        Run(self, directory, choose(device), report, stop)()
