"""What a study of costs is: each row counted at the paper's size, and timed beside RoPE.

Counted are the parameters, multiply-accumulates and elementwise operations of a forward pass
(`milepost.study.costs.count`), which needs no time and no GPU. Timed are an attention layer, a
model's forward pass and a training step's forward and backward, each in turn with the same of RoPE
in the same process (`milepost.study.costs.cell`): a figure is how many times RoPE's time it is.

Everything here is plain data and imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from milepost.errors import UsageError, unknown
from milepost.study.figures import Figures
from milepost.study.kinds import check_grid
from milepost.study.study import Row

if TYPE_CHECKING:
    from milepost.study.costs.cell import CostCell

ARM = "costs"
"""All cells of such a study are of this arm: the rows are what differs."""

BASE = "rope"
"""The row that all others are held against. It is timed beside itself, too: that is the noise."""

PARTS = {
    "attention": "attention layer",
    "forward": "forward",
    "training": "forward and backward",
}
"""What is timed, and what people are shown."""

# What a finished cell's file has.
MEASURED = (
    "settings",
    "counted",
    "measured",
    "kernels",
    "seconds",
    "versions",
    "machine",
)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is timed, and for how long.

    Attributes:
        model: settings of `milepost.model.Config`, without the encoding.
        length, batch: of the tokens.
        precision: of the weights and of all arithmetic: "fp32" or "bf16".
        device: "cpu" or "cuda"; the first GPU, or else the CPU, if empty.
        calls: how many in a row are one measurement.
        rounds: measurements of each part, at most.
        seconds: after so long a part has no more rounds.
        least: rounds that are made however long they take.
    """

    model: Mapping[str, Any]
    length: int
    batch: int = 1
    precision: Literal["fp32", "bf16"] = "fp32"
    device: str = ""
    calls: int = 1
    rounds: int = 40
    seconds: float = 2.0
    least: int = 5

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "model": dict(self.model)}

    def given(self, overrides: Mapping[str, Any]) -> Sizes:
        """These with some replaced, as a command line has them; other names are the model's."""
        own = {one.name for one in fields(self)} - {"model"}
        for name in own & overrides.keys():
            self._check(name, overrides[name])
        model = {name: value for name, value in overrides.items() if name not in own}
        changed = {name: value for name, value in overrides.items() if name in own}
        return replace(self, model={**self.model, **model}, **changed)

    def _check(self, name: str, value: Any) -> None:
        number = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        if name == "precision":
            valid, expected = value in ("fp32", "bf16"), "fp32 or bf16"
        elif name == "device":
            valid, expected = isinstance(value, str), "cpu, cuda or nothing"
        elif name == "seconds":
            valid, expected = number, "a number above 0"
        else:
            valid, expected = number and isinstance(value, int), "a whole number above 0"
        if not valid:
            raise UsageError(f"setting {name!r} must be {expected}, got {value!r}: change it")


@dataclass(frozen=True)
class Claim:
    """A statement of the paper that counts or times can bear out.

    Attributes:
        text: in the paper's words or close to them.
        where: it is printed.
        measure: one of `PARTS`, in multiples of RoPE's time; "parameters", "macs" or "flops", in
            multiples of RoPE's; "none" if nothing here can test it.
        rows: of which something is said.
        faster: they are said to be below each of these.
        at_most, at_least: instead, they are said to be within these bounds.
        why_not: why it cannot be tested here.
    """

    text: str
    where: str
    measure: Literal["attention", "forward", "training", "parameters", "macs", "flops", "none"] = (
        "none"
    )
    rows: tuple[str, ...] = ()
    faster: tuple[str, ...] = ()
    at_most: float | None = None
    at_least: float | None = None
    why_not: str = ""

    question = False  # of readers there are none here


@dataclass(frozen=True)
class CostStudy:
    """A study of costs: its rows, its scales, and the paper's figures.

    Attributes:
        name, title, paper, link: as of any study.
        rows: what is counted and timed, RoPE's among them.
        counted: the settings of the model that is counted, without its encoding.
        counted_length: the tokens that are counted.
        scales: what is timed.
        figures: of the paper.
        claims: of the paper.
        remarks: what a reader of the tables must know.
        seeds: how often each row is timed, in a process of its own each time.
        minutes: that the mini scale took on two cores, by each row's fastest seed.
        overrides: settings given by the user.
    """

    name: str
    title: str
    paper: str
    link: str
    rows: tuple[Row, ...]
    counted: Mapping[str, Any]
    counted_length: int
    scales: Mapping[str, Sizes]
    figures: tuple[Figures, ...] = ()
    claims: tuple[Claim, ...] = ()
    remarks: tuple[str, ...] = ()
    seeds: int = 1
    minutes: int | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)

    needs = ""
    report = "costs"
    alone = True
    """Its cells cannot run side by side, as each would slow the other down."""

    @property
    def encodings(self) -> tuple[str, ...]:
        """The names of the rows."""
        return tuple(row.name for row in self.rows)

    @property
    def declared(self) -> dict[str, Any]:
        """What study.json keeps beside the grid."""
        return {"settings": dict(self.overrides)} if self.overrides else {}

    def row(self, name: str) -> Row:
        """The row of that name."""
        rows = {row.name: row for row in self.rows}
        if name not in rows:
            raise unknown("row", name, self.encodings)
        return rows[name]

    def with_settings(self, overrides: Mapping[str, Any]) -> CostStudy:
        """The study with other sizes than its scales have."""
        return replace(self, overrides={**self.overrides, **overrides})

    def sizes(self, scale: str) -> Sizes:
        """What is timed at a scale, with the settings that were given instead."""
        if scale not in self.scales:
            raise unknown("scale", scale, self.scales)
        return self.scales[scale].given(self.overrides)

    def cells(self, scale: str, encodings: Sequence[str], seeds: int) -> list[CostCell]:
        """Every row once, RoPE's first, then every row again, ..."""
        check_grid(self, encodings, seeds)
        names = dict.fromkeys([BASE, *encodings])
        return [self._cell(scale, name, seed) for seed in range(seeds) for name in names]

    def cell(self, scale: str, arm: str, encoding: str, seed: int) -> CostCell | None:
        """The cell there, or None where there is none any more."""
        if arm != ARM or encoding not in self.encodings:
            return None
        return self._cell(scale, encoding, seed)

    def _cell(self, scale: str, name: str, seed: int) -> CostCell:
        from milepost.study.costs.cell import CostCell

        return CostCell(
            row=self.row(name),
            base=self.row(BASE),
            sizes=self.sizes(scale),
            counted=self.counted,
            counted_length=self.counted_length,
            seed=seed,
        )
