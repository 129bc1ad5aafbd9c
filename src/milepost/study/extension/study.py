"""What a study of context extension is: a base, the ways to extend it, and what is measured.

A base is a RoPE model of context length T: one that is trained here, or a checkpoint. Each `Row`
extends it to factor · T with the same number of steps on the same batches in the same order. Then
all are measured, and the base too, as it is: perplexity in windows from T/4 to factor · T of text
that nothing was trained on, and how many passkeys are found at lengths up to factor · T.

Everything here is plain data and imports no torch; `milepost.study.extension.cell` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from milepost.errors import UsageError, unknown
from milepost.study.figures import Figures
from milepost.study.kinds import check_grid

if TYPE_CHECKING:
    from milepost.study.extension.cell import ExtensionCell

ARM = "extension"
"""All cells of such a study are of this arm: the rows are what differs."""

BASE = "base"
"""The row of the base itself, unextended."""

# What a finished cell's file has.
MEASURED = (
    "settings",
    "trained",
    "base",
    "perplexity",
    "passkey",
    "history",
    "seconds",
    "versions",
    "machine",
)

_TUPLES = {"passkey_lengths": int, "depths": float}
_TEXTS = ("corpus", "test_corpus", "checkpoint", "precision")
_MAY_BE_NONE = ("checkpoint", "test_corpus", "length")
_MAY_BE_ZERO = ("weight_decay", "base_weight_decay", "warmup", "base_warmup", "passkeys", "seed")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that decides a cell's numbers, beside its row and seed.

    Attributes:
        checkpoint: the base, a folder; None for one that is trained here.
        corpus: what to train on, and to test on its test documents (`milepost.corpus`).
        test_corpus: another path to test on, all of it; None for the corpus's own test documents.
        length: T; None for the checkpoint's `max_position_embeddings`.
        factor: how many times longer the extended context is.
        dim, layers, heads: of a base that is trained here, a Llama on bytes.
        base_steps, base_lr, base_warmup, base_weight_decay: of its training; the learning rate is
            constant after the warm-up, and falls to zero over the last third.
        steps, lr, warmup, weight_decay: of the extension, at a constant learning rate after the
            warm-up.
        texts: windows of text in a batch; a base that is trained here gets `factor` times as many,
            as they are shorter.
        passkeys: passkey prompts beside them, whose digits have a loss of their own.
        accumulate: batches for each update.
        beta2: of AdamW; β₁ is 0.9.
        clip: the largest norm of a gradient.
        precision: "fp32", or "bf16" in the model's arithmetic.
        lora_rank, lora_alpha: of LoRA, on the projections of queries, keys, values and outputs.
        theta: RoPE's base in theta scaling.
        test_tokens: how many tokens of the test text are scored, at most.
        passkey_lengths: of a prompt with its answer, in tokens.
        depths: where the key lies, from 0, the beginning, to 1.
        trials: keys for each length and depth.
        answer: tokens written for an answer.
    """

    checkpoint: str | None = None
    corpus: str
    test_corpus: str | None = None
    length: int | None
    factor: int = 2
    dim: int = 0
    layers: int = 0
    heads: int = 0
    base_steps: int = 0
    base_lr: float = 0.0
    base_warmup: int = 0
    base_weight_decay: float = 0.0
    steps: int
    lr: float
    warmup: int
    weight_decay: float = 0.0
    texts: int
    passkeys: int
    accumulate: int = 1
    beta2: float = 0.999
    clip: float = 1.0
    precision: Literal["fp32", "bf16"] = "fp32"
    lora_rank: int = 8
    lora_alpha: int = 16
    theta: float = 1e6
    test_tokens: int
    passkey_lengths: tuple[int, ...]
    depths: tuple[float, ...]
    trials: int
    answer: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    def given(self, overrides: Mapping[str, Any]) -> Settings:
        """These settings with some replaced, as a command line has them."""
        known = [one.name for one in fields(self)]
        for name, value in overrides.items():
            if name not in known:
                raise unknown("setting", name, known)
            self._check(name, value)
        changed: dict[str, Any] = {
            name: tuple(_TUPLES[name](one) for one in value) if name in _TUPLES else value
            for name, value in overrides.items()
        }
        return replace(self, **changed)

    def _check(self, name: str, value: Any) -> None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        default = getattr(self, name)
        if value is None and name in _MAY_BE_NONE:
            return
        if name in _TUPLES:
            least = 0 if name == "depths" else 1
            valid = (
                isinstance(value, list)
                and bool(value)
                and all(isinstance(one, int | float) and one >= least for one in value)
            )
            expected = "a list of numbers, such as [0, 0.5, 1]"
        elif name in _TEXTS:
            valid = isinstance(value, str) and (name != "precision" or value in ("fp32", "bf16"))
            expected = "fp32 or bf16" if name == "precision" else "the path of it"
        elif isinstance(default, float):
            valid = number and (value > 0 or (value == 0 and name in _MAY_BE_ZERO))
            expected = "a number above 0"
        else:
            whole = isinstance(value, int) and not isinstance(value, bool)
            valid = whole and value >= (0 if name in _MAY_BE_ZERO else 2 if name == "factor" else 1)
            expected = "a whole number above 0"
        if not valid:
            raise UsageError(f"setting {name!r} must be {expected}, got {value!r}: change it")


@dataclass(frozen=True)
class Row:
    """A way to extend the context.

    Attributes:
        name: of the row.
        about: what it does, in a line.
        encoding: what is put into the base.
        rope: what becomes of the base's RoPE: "kept", "interpolated" (positions divided by the
            factor), "interpolated, theta raised", or "by the encoding".
        lora: whether the attention's projections get LoRA.
        lr_factor: its learning rate as a multiple of the settings'.
    """

    name: str
    about: str
    encoding: str = "rope"
    rope: str = "interpolated"
    lora: bool = True
    lr_factor: float = 1.0
    encoding_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A statement of the paper that the measurements can bear out.

    Attributes:
        text: in the paper's words or close to them.
        where: it is printed.
        measure: "perplexity" (lower is better) or "passkey" (higher is better), of a row against
            others; "nearly all" passkeys found by a row; "none" if nothing here can test it.
        better: the row that is said to be better.
        worse: than these.
        lengths: as multiples of T; all that were measured if there are none.
        why_not: why it cannot be tested here.
    """

    text: str
    where: str
    measure: Literal["perplexity", "passkey", "nearly all", "none"] = "none"
    better: str = ""
    worse: tuple[str, ...] = ()
    lengths: tuple[float, ...] = ()
    why_not: str = ""

    question = False  # of readers there are none here


@dataclass(frozen=True)
class Extension:
    """A study of context extension: its rows, its scales, and the paper's figures."""

    name: str
    title: str
    paper: str
    link: str
    rows: tuple[Row, ...]
    scales: Mapping[str, Settings]
    figures: tuple[Figures, ...] = ()
    claims: tuple[Claim, ...] = ()
    remarks: tuple[str, ...] = ()
    seeds: int = 3
    minutes: int | None = None
    """That the mini scale took on two cores, by each row's fastest seed."""
    overrides: Mapping[str, Any] = field(default_factory=dict)

    needs = ""
    report = "extension"
    alone = False

    @property
    def encodings(self) -> tuple[str, ...]:
        """The names of the rows, the base's first."""
        return (BASE, *(row.name for row in self.rows))

    @property
    def declared(self) -> dict[str, Any]:
        """What study.json keeps beside the grid."""
        return {"settings": dict(self.overrides)}

    def row(self, name: str) -> Row:
        """The row of that name."""
        if name == BASE:
            return Row(BASE, "the base as it is", rope="kept", lora=False)
        rows = {row.name: row for row in self.rows}
        if name not in rows:
            raise unknown("row", name, self.encodings)
        return rows[name]

    def with_settings(self, overrides: Mapping[str, Any]) -> Extension:
        """The study with other settings than its scales have."""
        return replace(self, overrides={**self.overrides, **overrides})

    def settings(self, scale: str) -> Settings:
        """The settings of a scale, with those that were given instead."""
        if scale not in self.scales:
            raise unknown("scale", scale, self.scales)
        settings = self.scales[scale].given(self.overrides)
        if settings.checkpoint is None and not settings.base_steps:
            raise UsageError(
                f"{self.name} at {scale} scale extends a pretrained model, and nothing is "
                f"downloaded: give one by --settings checkpoint=PATH corpus=PATH, a folder that "
                f"transformers reads with its tokenizer, and text to train on"
            )
        if settings.checkpoint is None and settings.length is None:
            raise UsageError(
                "setting 'length' must be a whole number where the base is trained here, got None: "
                "give it, or a checkpoint"
            )
        if not settings.corpus:
            raise UsageError(
                f"{self.name} at {scale} scale trains on text of yours, and nothing is downloaded: "
                f"give it by --settings corpus=PATH, a folder of text files or a file"
            )
        return settings

    def cells(self, scale: str, encodings: Sequence[str], seeds: int) -> list[ExtensionCell]:
        """Every run of the grid: the base and all rows of seed 0, then of seed 1, ..."""
        from milepost.study.extension.cell import ExtensionCell

        check_grid(self, encodings, seeds)
        settings = self.settings(scale)
        rows = [self.row(name) for name in dict.fromkeys([BASE, *encodings])]
        return [
            ExtensionCell(row=row, settings=settings, seed=seed)
            for seed in range(seeds)
            for row in rows
        ]

    def cell(self, scale: str, arm: str, encoding: str, seed: int) -> ExtensionCell | None:
        """The cell there, or None where there is none any more."""
        from milepost.study.extension.cell import ExtensionCell

        if arm != ARM or encoding not in self.encodings:
            return None
        return ExtensionCell(self.row(encoding), self.settings(scale), seed)
