"""A checkpoint: all that a run needs to continue, in one file that is whole or is not there.

The file holds the settings, the model, the optimizer, the counters and the state of the random
generators. Where several processes train, the tensors of the model and the optimizer are in a
folder that the file names (`milepost.training.shards`). It is a torch archive of plain data
(`torch.load(weights_only=True)`), whose check sums are verified when it is read: torch itself reads
flipped bits as weights.
"""

import io
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from milepost.errors import UsageError
from milepost.files import cannot_read, write_whole
from milepost.training import rundir
from milepost.training.distributed import ALONE, Processes, own_randomness
from milepost.training.settings import Settings

FORMAT = "milepost checkpoint 1"

SHARDED = "milepost sharded checkpoint 1"


@dataclass
class Counters:
    """How far a run has come.

    Attributes:
        step: steps done.
        tokens: tokens read by the model.
        seconds: time spent, over all sessions.
        loss: the last one that was finite.
        skipped: steps whose loss or gradient was not finite.
        skipped_in_a_row: how many of them are the latest steps.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    loss: float | None = None
    skipped: int = 0
    skipped_in_a_row: int = 0


def save_tensors(path: Path, content: Mapping[str, Any]) -> None:
    """Write tensors and plain data, whole or not at all."""
    # in memory first: on a full disk torch.save hides the system's error behind one of its own
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_whole(path, lambda file: file.write(buffer.getbuffer()))


def save(
    path: Path,
    settings: Settings,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    counters: Counters,
    device: torch.device,
    processes: Processes = ALONE,
) -> None:
    """Write the checkpoint of a run; all its processes take part."""
    generators = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        generators["cuda"] = torch.cuda.get_rng_state(device)
    content: dict[str, Any] = {
        "format": FORMAT,
        "settings": settings.to_dict(),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "counters": asdict(counters),
        "generators": generators,
    }
    folder = None
    if processes.count > 1:
        from milepost.training import shards

        folder = f"{rundir.SHARDS}{counters.step}"
        content["generators"], *content["other_generators"] = processes.gather(generators)
        tensors = named(content.pop("model"), content["optimizer"].pop("state"))
        sums = shards.write(path.parent / folder, tensors, processes)
        content |= {"format": SHARDED, "shards": {"folder": folder, "sums": sums}}

    def finish() -> None:
        save_tensors(path, content)
        rundir.clear_shards(path.parent, keep=folder)

    processes.lead(finish)


def named(model: Mapping[str, Tensor], optimizer: Mapping[int, Any]) -> dict[str, Tensor]:
    """The tensors of a model and of its optimizer, in one dict, as they are called in shards."""
    tensors = {f"model/{name}": tensor for name, tensor in model.items()}
    for index, state in optimizer.items():
        tensors |= {f"optimizer/{index}/{name}": tensor for name, tensor in state.items()}
    return tensors


def unnamed(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[int, Any]]:
    """The inverse of `named`."""
    model: dict[str, Tensor] = {}
    optimizer: dict[int, Any] = {}
    for name, tensor in tensors.items():
        kind, rest = name.split("/", 1)
        if kind == "model":
            model[rest] = tensor
        else:
            index, rest = rest.split("/", 1)
            optimizer.setdefault(int(index), {})[rest] = tensor
    return model, optimizer


def require(path: Path, remedy: str = "give that of a run of `milepost train`") -> None:
    """Raise a `UsageError` unless there is a checkpoint."""
    if path.exists():
        return
    folder, config = path.parent, path.parent / "config.json"
    if config.exists() and b'"model_type"' in config.read_bytes():
        raise UsageError(
            f"{folder} is a Hugging Face folder, not a run: turn it back with `milepost convert`, "
            f"or score it with `milepost eval`"
        )
    if not folder.is_dir():
        why = "there is no such folder"
    else:
        why = "the folder holds other files" if any(folder.iterdir()) else "the folder is empty"
    raise UsageError(f"no checkpoint at {path}, {why}: {remedy}")


def load(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, on the CPU; the settings as `Settings`."""
    return completed(path, load_file(path))


def completed(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """The content of the file with the tensors that are in shards."""
    if content["format"] == SHARDED:
        from milepost.training import shards

        folder = path.parent / content["shards"]["folder"]
        with reading(folder):
            tensors = shards.read(folder, content["shards"]["sums"])
        content["model"], content["optimizer"]["state"] = unnamed(tensors)
    return content


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Within, what fails because the path's bytes are damaged is a `UsageError`."""
    try:
        yield
    except OSError as error:
        raise cannot_read(path, error) from error
    # damaged bytes may fail anywhere in the two libraries
    except (
        zipfile.BadZipFile,
        pickle.UnpicklingError,
        RuntimeError,
        ValueError,
        EOFError,
    ) as error:
        raise UsageError(
            f"{path} is damaged ({str(error).splitlines()[0]}): restore it from a copy, or train "
            "again into another folder"
        ) from error


def load_file(path: Path) -> dict[str, Any]:
    """What `checkpoint.pt` itself holds: all, or all but the tensors that are in shards."""
    require(path)
    with reading(path):
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged:
            raise zipfile.BadZipFile(f"wrong check sum of {damaged}")
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(content, dict) or content.get("format") not in (FORMAT, SHARDED):
        raise UsageError(
            f"{path} is not a checkpoint of this version of milepost: use the version that wrote "
            "it, or train again into another folder"
        )
    return {**content, "settings": Settings.from_dict(content["settings"])}


def resume(
    path: Path,
    settings: Settings,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    processes: Processes = ALONE,
) -> Counters:
    """Put model, optimizer and random generators in the checkpoint's state.

    As many processes as wrote it have their random generators back. One that there was not has new
    ones.
    """
    content: dict[str, Any] = {}
    processes.agree(lambda: content.update(check_resumable(path, settings)))
    if processes.count > 1:
        fill(path, content, model, optimizer, processes)
    else:
        content = completed(path, content)
        load_model(path, content, model)
        optimizer.load_state_dict(content["optimizer"])
    generators = [content["generators"], *content.get("other_generators", [])]
    counters = Counters(**content["counters"])
    if processes.rank < len(generators):
        mine = generators[processes.rank]
        torch.set_rng_state(mine["cpu"])
        if device.type == "cuda" and "cuda" in mine:
            torch.cuda.set_rng_state(mine["cuda"], device)
    else:
        own_randomness(settings.seed, processes, device, step=counters.step)
    return counters


def check_resumable(path: Path, settings: Settings) -> dict[str, Any]:
    """What `load_file` gives, if a run of these settings can go on from it."""
    content = load_file(path)
    differences = content["settings"].differences(settings)
    if differences:
        raise UsageError(
            f"{path} is of other settings ({'; '.join(differences)}, the checkpoint's first): "
            "resume with the same, or train with another --out"
        )
    if "optimizer" not in content:
        raise UsageError(
            f"{path} was converted from a Hugging Face folder, which keeps no optimizer state: it "
            "can be tested, not resumed. Resume the run it came from, or train with another --out"
        )
    return content


def fill(
    path: Path,
    content: dict[str, Any],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    processes: Processes,
) -> None:
    """Put a model and optimizer of several processes in the checkpoint's state, share by share."""
    from milepost.training import shards

    ours = model.state_dict()
    stored: dict[str, Tensor] = {}
    folder = None
    if content["format"] == SHARDED:
        folder = path.parent / content["shards"]["folder"]

    def look() -> None:
        if folder is None:
            stored.update(named(content["model"], content["optimizer"]["state"]))
        else:
            with reading(folder):
                shards.verify(folder, content["shards"]["sums"], processes)
                stored.update(shards.index(folder))
        theirs = unnamed(stored)[0]
        if {n: t.shape for n, t in ours.items()} != {n: t.shape for n, t in theirs.items()}:
            raise does_not_fit(path)

    processes.agree(look)
    parameters = list(model.parameters())
    # a moment is shared out as its parameter is; the count of steps is everyone's
    state = {
        index: {
            name: torch.zeros_like(parameters[index])
            if value.shape == parameters[index].shape
            else torch.zeros(value.shape, dtype=value.dtype)
            for name, value in values.items()
        }
        for index, values in unnamed(stored)[1].items()
    }
    tensors = named(ours, state)
    if folder is None:
        shards.spread(stored, tensors)
    else:
        with reading(folder):
            shards.fill(folder, tensors)
    optimizer.load_state_dict({**content["optimizer"], "state": state})


def does_not_fit(path: Path) -> UsageError:
    """The error for a checkpoint whose tensors are not those of the model."""
    return UsageError(
        f"{path} does not fit the model of its settings, which this version of milepost "
        "builds otherwise: use the version that wrote it, or train again into another folder"
    )


def load_model(path: Path, content: Mapping[str, Any], model: nn.Module) -> None:
    """Give the model the checkpoint's weights."""
    try:
        model.load_state_dict(content["model"])
    except RuntimeError as error:
        raise does_not_fit(path) from error
