"""`milepost train`: one model on one task."""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Arguments:
    """Train one model on one task, as the task's recipe for the scale says unless told otherwise.

    Ctrl-C leaves a checkpoint, and --resume goes on from it to the very same end.
    """

    task: Annotated[str, tyro.conf.arg(metavar="NAME")]
    """From `milepost tasks`."""
    encoding: Annotated[str, tyro.conf.arg(metavar="NAME")]
    """From `milepost encodings`."""
    scale: Literal["mini", "paper"] = "mini"
    """The recipe: the paper's, or one for minutes on a CPU."""
    seed: int = 0
    """Of the weights and the data."""
    out: Path | None = None
    """The run's folder; runs/TASK-ENCODING-SCALE-seedN if left out."""
    resume: bool = False
    """Go on from the checkpoint in the folder."""
    task_settings: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Settings of the task, such as length=128."""
    encoding_options: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Options of the encoding, such as p_max=32 shared=true."""
    model: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Settings of the model, such as dim=128 layers=4."""
    steps: int | None = None
    """Updates."""
    batch: int | None = None
    """Sequences in each."""
    lr: float | None = None
    """The peak of the learning rate."""
    schedule: Literal["constant", "linear", "cosine"] | None = None
    """Of the learning rate."""
    warmup: int | None = None
    """Updates in which the learning rate rises to its peak."""
    weight_decay: float | None = None
    """Of the optimizer."""
    precision: Literal["fp32", "bf16"] | None = None
    """Of the model's arithmetic."""
    compile: bool | None = None
    """Put the model through torch.compile."""
    evaluate_every: int | None = None
    """Measure the in-distribution error every so many steps; 0 for never."""
    device: str | None = None
    """Such as cpu or cuda; the first GPU if there is one."""


# The arguments that are settings of the same name; None leaves the recipe's value.
SETTINGS = (
    "steps",
    "batch",
    "lr",
    "schedule",
    "warmup",
    "weight_decay",
    "precision",
    "compile",
    "evaluate_every",
)


def run(arguments: Arguments) -> int:
    """Train, with a progress line on standard error."""
    from milepost.commands.pairs import pairs
    from milepost.report.live import TrainingLine
    from milepost.training import recipes
    from milepost.training.loop import train

    changes = {name: getattr(arguments, name) for name in SETTINGS}
    settings = recipes.settings(
        arguments.task,
        arguments.scale,
        arguments.encoding,
        arguments.seed,
        task_settings=pairs("task-settings", arguments.task_settings),
        encoding_options=pairs("encoding-options", arguments.encoding_options),
        model=pairs("model", arguments.model),
        **{name: value for name, value in changes.items() if value is not None},
    )
    out = arguments.out or Path(
        "runs", f"{arguments.task}-{arguments.encoding}-{arguments.scale}-seed{arguments.seed}"
    )
    with TrainingLine() as line:
        outcome = train(
            settings, out, resume=arguments.resume, progress=line, device=arguments.device
        )
    if outcome.stopped:
        print(
            f"stopped at step {outcome.step} of {settings.steps}; "
            "the same command with --resume goes on from there",
            file=sys.stderr,
        )
        return 130
    loss = math.nan if outcome.loss is None else outcome.loss
    print(f"{out}: {outcome.step} steps in {outcome.seconds:.0f} s, loss {loss:.4f}")
    print(f"test it: milepost evaluate {out}")
    return 0
