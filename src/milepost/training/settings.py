"""Everything that decides the numbers of a run, and nothing else.

Two runs of equal settings are one run, so the settings' hash can name its results. What only
decides where or how a run is carried out (device, folder, checkpoints) is an argument of `train`.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Literal, get_args, get_type_hints

from milepost.errors import UsageError, unknown
from milepost.files import digest

# these of a model's settings follow from the task, or have fields of their own
NOT_IN_MODEL = ("vocab_size", "encoding", "encoding_options")

# the tasks' data is keyed on 32 bits of seed
SEED_LIMIT = 2**32


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a run.

    Attributes:
        task: a name from `milepost tasks`.
        task_settings: its settings, where they are not the paper's.
        encoding: a name from `milepost encodings`.
        encoding_options: its options, where they are not the defaults.
        model: settings of `milepost.model.Config`, without the vocabulary and the encoding. The
            task's longest sequence is the default of `max_length`.
        seed: of the weights, the dropout and the data.
        steps: how many updates.
        batch: sequences per micro-batch.
        accumulate: micro-batches per update; their gradient is that of one batch of them all.
        optimizer: "adamw", or "adam", in which the weight decay is an L2 penalty.
        lr: the learning rate at its peak.
        betas: of the optimizer.
        eps: of the optimizer.
        weight_decay: on all parameters alike, as the papers' plain PyTorch optimizers have it.
        schedule: "constant", or from the peak to 0 at `steps` as a "linear" or "cosine".
        warmup: updates over which the learning rate rises linearly to its peak.
        clip: the largest norm of a gradient, longer ones are scaled down to it; None for any.
        precision: "fp32", or "bf16" in the model, with weights and loss still in fp32.
        compile: whether the model goes through `torch.compile`.
        train_sequences: train on so many sequences, epoch after epoch; None for ever new ones.
        evaluate_every: measure the in-distribution error every so many steps, and after the last;
            0 for never.
        evaluate_sequences: on so many sequences.
        evaluate_on: the test sets to measure beside; none by default.
    """

    task: str
    task_settings: Mapping[str, Any] = field(default_factory=dict)
    encoding: str
    encoding_options: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any]
    seed: int = 0
    steps: int
    batch: int
    accumulate: int = 1
    optimizer: Literal["adam", "adamw"] = "adamw"
    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    warmup: int = 0
    clip: float | None = 1.0
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    train_sequences: int | None = None
    evaluate_every: int = 0
    evaluate_sequences: int = 256
    evaluate_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check every setting, and make 1 and 1.0 the same setting."""
        for name in ("steps", "batch", "accumulate", "evaluate_sequences"):
            self._expect(name, _whole(getattr(self, name), 1), "an int of at least 1")
        for name in ("warmup", "evaluate_every"):
            self._expect(name, _whole(getattr(self, name), 0), "an int of at least 0")
        seeded = _whole(self.seed, 0) and self.seed < SEED_LIMIT
        self._expect("seed", seeded, f"an int from 0 to {SEED_LIMIT - 1}")
        for name in ("lr", "eps", "weight_decay"):
            value = getattr(self, name)
            self._expect(name, _number(value) and value >= 0, "a number of at least 0")
            object.__setattr__(self, name, float(value))
        pair = isinstance(self.betas, tuple | list) and len(self.betas) == 2
        valid = pair and all(_number(beta) and 0 <= beta < 1 for beta in self.betas)
        self._expect("betas", valid, "two numbers from 0 to below 1")
        object.__setattr__(self, "betas", tuple(float(beta) for beta in self.betas))
        if self.clip is not None:
            self._expect("clip", _number(self.clip) and self.clip > 0, "a number above 0, or None")
            object.__setattr__(self, "clip", float(self.clip))
        finite = self.train_sequences is None or _whole(self.train_sequences, 1)
        self._expect("train_sequences", finite, "an int of at least 1, or None")
        self._expect("compile", isinstance(self.compile, bool), "true or false")
        named = isinstance(self.evaluate_on, tuple | list) and all(
            isinstance(name, str) for name in self.evaluate_on
        )
        self._expect("evaluate_on", named, "names of test sets")
        object.__setattr__(self, "evaluate_on", tuple(self.evaluate_on))
        hints = get_type_hints(type(self))
        for name in ("optimizer", "schedule", "precision"):
            if getattr(self, name) not in get_args(hints[name]):
                raise unknown(name, str(getattr(self, name)), get_args(hints[name]))
        for name in ("task_settings", "encoding_options", "model"):
            value = getattr(self, name)
            valid = isinstance(value, Mapping) and _is_json(value)
            self._expect(name, valid, "names with values that JSON can hold, and finite numbers")
        for name in NOT_IN_MODEL:
            if name in self.model:
                raise UsageError(
                    f"model: {name} does not belong there; the encoding has its own settings, "
                    "and the vocabulary is the task's"
                )

    def _expect(self, name: str, valid: bool, expected: str) -> None:
        if not valid:
            raise UsageError(f"{name} must be {expected}, got {getattr(self, name)!r}")

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: plain dicts and lists.

        What came later is left out where it is at its default: results are named after hashes.
        """
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        if not plain["evaluate_on"]:
            del plain["evaluate_on"]
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Settings":
        """The inverse of `to_dict`; a key that is unknown or missing is a `UsageError`."""
        known = {f.name for f in fields(cls)}
        for name in values:
            if name not in known:
                raise unknown("setting", name, known)
        for f in fields(cls):
            if f.name not in values and f.default is MISSING and f.default_factory is MISSING:
                raise UsageError(f"{f.name} is missing from the settings: give it a value")
        return cls(**values)

    @property
    def hash(self) -> str:
        """16 hexadecimal digits that stand for these settings."""
        return digest(self.to_dict())

    def differences(self, other: "Settings") -> list[str]:
        """One line for each setting in which `other` differs."""
        ours, theirs = asdict(self), asdict(other)
        return [f"{name} {ours[name]!r} ≠ {theirs[name]!r}" for name in _differing(ours, theirs)]


def _differing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterable[str]:
    return (name for name in ours if ours[name] != theirs[name])


def _is_json(values: Mapping[str, Any]) -> bool:
    try:
        json.dumps(dict(values), allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _whole(value: object, least: int) -> bool:
    """Whether the value is an int (True and False are not) of at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
