"""`train`: from settings to a run directory, and on from wherever that directory was left.

A run is a function of its settings. The generators are seeded from them and handed back to the
caller as they were; the data of a step depends on nothing before it. So a run that is stopped and
resumed ends, on a CPU, with the very bits of one that was not.
"""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import fields
from pathlib import Path

import torch

from milepost import tasks
from milepost.errors import unknown
from milepost.model import Config, Decoder
from milepost.tasks.task import Task
from milepost.training import checkpoint, distributed, rundir
from milepost.training.device import randomness_of
from milepost.training.interrupt import stop_requests
from milepost.training.session import Outcome, Progress, Session
from milepost.training.settings import NOT_IN_MODEL, Settings
from milepost.training.step import Stepper


def build_model(settings: Settings, task: Task) -> Decoder:
    """The model of the settings, drawn from torch's own generator."""
    known = {f.name for f in fields(Config)} - {*NOT_IN_MODEL}
    for name in settings.model:
        if name not in known:
            raise unknown("model setting", name, known)
    values = {"max_length": task.max_length, **settings.model}
    config = Config.from_dict(
        {
            **values,
            "vocab_size": task.vocab_size,
            "encoding": settings.encoding,
            "encoding_options": dict(settings.encoding_options),
        }
    )
    return Decoder(config)


@torch.inference_mode()
def read_longest(model: Decoder, task: Task, device: torch.device) -> None:
    """Raise now, before anything is written, what the task's longest sequence would raise later."""
    model.eval()
    model(torch.zeros(1, task.max_length - 1, dtype=torch.int64, device=device))
    model.train()


def train(
    settings: Settings,
    out: Path,
    *,
    resume: bool = False,
    checkpoint_every: float = 60.0,
    progress: Callable[[Progress], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
    device: str | None = None,
) -> Outcome:
    """Train as the settings say.

    Ctrl-C ends the step, writes a checkpoint and returns; a second one aborts. Started by
    `torchrun`, its processes train one model together (`milepost.training.distributed`).

    Args:
        settings: what to train.
        out: the run directory (`milepost.training.rundir`).
        resume: continue the run that is there.
        checkpoint_every: seconds between checkpoints, the work that a power cut may cost; 0 for
            one at each step.
        progress: called after each step, in the first process.
        stop: asked before each step, in every process, whether all are to stop there.
        device: to train on; the first GPU, or each process's own, or else the CPU, if None.

    Raises:
        UsageError: the settings name what does not exist; the directory is in use, already holds
            a run, or holds none to resume; or it cannot be written; or several processes cannot
            share the batch or the model.
        DivergenceError: ten steps in a row had a loss or gradient that was not finite.
    """
    out = Path(out)
    if resume:
        checkpoint.require(out / rundir.CHECKPOINT, "leave --resume out to start a run there")
    task = tasks.build(settings.task, **settings.task_settings)
    task.check()
    place = distributed.place(device)
    with ExitStack() as stack:
        processes = stack.enter_context(distributed.together(place))
        stack.enter_context(randomness_of(settings.seed, place))
        distributed.check_batch(settings.batch, processes)
        model = build_model(settings, task).to(place)
        read_longest(model, task, place)
        distributed.shard(model, processes, place)
        distributed.own_randomness(settings.seed, processes, place)
        stepper = Stepper(settings, task, model, place, processes)
        processes.lead(lambda: stack.enter_context(rundir.locked(out)))
        interrupted = stack.enter_context(stop_requests())
        session = stack.enter_context(closing(Session(settings, task, out, stepper, resume)))
        while not session.finished and not processes.any(interrupted() or stop()):
            made = session.advance()
            if processes.leads:
                progress(made)
            if processes.any(session.seconds_unsaved >= checkpoint_every):
                session.save()
        session.save()
    return session.outcome
