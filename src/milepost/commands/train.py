"""`milepost train`: one model on one task."""

import math
import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Arguments:
    """Train one model on one task, as the task's recipe for the scale says unless told otherwise.

    Ctrl-C leaves a checkpoint, and --resume goes on from it to the very same end. For several GPUs:
    torchrun --nproc-per-node N -m milepost train ...
    """

    task: Annotated[str, tyro.conf.arg(metavar="NAME")]
    """From `milepost tasks`: a task, or another recipe for one, such as prose or code for text."""
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
    preset: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """A model of milepost.presets, such as flip-flop/liu, instead of the recipe's."""
    steps: int | None = None
    """Updates."""
    batch: int | None = None
    """Sequences in each, or in each of --accumulate."""
    accumulate: int | None = None
    """Batches whose gradients are added up for an update."""
    optimizer: Literal["adam", "adamw"] | None = None
    """adam has the weight decay as an L2 penalty."""
    lr: float | None = None
    """The peak of the learning rate."""
    schedule: Literal["constant", "linear", "cosine"] | None = None
    """Of the learning rate."""
    warmup: int | None = None
    """Updates in which the learning rate rises to its peak."""
    weight_decay: float | None = None
    """Of the optimizer."""
    clip: float | Literal["none", "recipe"] = "recipe"
    """The largest norm of a gradient; longer ones are scaled down to it."""
    precision: Literal["fp32", "bf16"] | None = None
    """Of the model's arithmetic."""
    compile: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Put the model through torch.compile."""
    evaluate_every: int | None = None
    """Measure the in-distribution error every so many steps; 0 for never."""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """The rest of milepost.training.settings: betas=[0.9,0.95], eps, train_sequences (a number, or
    none for ever new ones), evaluate_sequences and evaluate_on=["sparse"]."""
    device: str | None = None
    """cpu or cuda; the first GPU if there is one, or under torchrun each process's own."""


# The arguments that are settings of the same name; None leaves the recipe's value.
SETTINGS = (
    "steps",
    "batch",
    "accumulate",
    "optimizer",
    "lr",
    "schedule",
    "warmup",
    "weight_decay",
    "precision",
    "evaluate_every",
)

# Those of `--settings`.
OTHERS = ("betas", "eps", "train_sequences", "evaluate_sequences", "evaluate_on")


def run(arguments: Arguments) -> int:
    """Train, with a progress line on standard error."""
    from milepost import presets
    from milepost.commands.pairs import pairs
    from milepost.errors import unknown
    from milepost.report.live import TrainingLine
    from milepost.training import recipes
    from milepost.training.distributed import leads
    from milepost.training.loop import train
    from milepost.wording import counted

    given = {name: getattr(arguments, name) for name in SETTINGS}
    changes = {name: value for name, value in given.items() if value is not None}
    if arguments.clip != "recipe":
        changes["clip"] = None if arguments.clip == "none" else arguments.clip
    if arguments.compile:
        changes["compile"] = True
    for name, value in pairs("settings", arguments.settings).items():
        if name not in OTHERS:
            raise unknown("name for --settings", name, OTHERS)
        changes[name] = value
    model = pairs("model", arguments.model)
    settings = recipes.settings(
        arguments.task,
        arguments.scale,
        arguments.encoding,
        arguments.seed,
        task_settings=pairs("task-settings", arguments.task_settings),
        encoding_options=pairs("encoding-options", arguments.encoding_options),
        model=model,
        **changes,
    )
    if arguments.preset is not None:
        length = {"max_length": settings.model["max_length"]}
        preset = {**presets.model(arguments.preset), **length, **model}
        settings = replace(settings, model=preset)
    out = arguments.out or Path(
        "runs", f"{arguments.task}-{arguments.encoding}-{arguments.scale}-seed{arguments.seed}"
    )
    # of the processes that torchrun starts, one speaks
    with TrainingLine() if leads() else nullcontext(lambda _: None) as line:
        outcome = train(
            settings, out, resume=arguments.resume, progress=line, device=arguments.device
        )
    if not leads():
        return 130 if outcome.stopped else 0
    if outcome.stopped:
        print(
            f"stopped at step {outcome.step} of {settings.steps}; "
            "the same command with --resume goes on from there",
            file=sys.stderr,
        )
        return 130
    loss = math.nan if outcome.loss is None else outcome.loss
    steps = counted(outcome.step, "step")
    print(f"{out}: {steps} in {outcome.seconds:.0f} s, loss {loss:.4f}")
    print(f"test it: milepost evaluate {out}")
    print(f"see what it counts: milepost look {out}")
    return 0
