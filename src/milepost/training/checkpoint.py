"""A checkpoint: all that a run needs to continue, in one file that is whole or is not there.

The file holds the settings, the model, the optimizer, the counters and the state of the random
generators. It is a torch archive of plain data (`torch.load(weights_only=True)`), whose check sums
are verified when it is read: torch itself reads flipped bits as weights.
"""

import io
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from milepost.errors import UsageError
from milepost.files import cannot_read, write_whole
from milepost.training.settings import Settings

FORMAT = "milepost checkpoint 1"


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
) -> None:
    """Write the checkpoint of a run."""
    generators = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        generators["cuda"] = torch.cuda.get_rng_state(device)
    content = {
        "format": FORMAT,
        "settings": settings.to_dict(),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "counters": asdict(counters),
        "generators": generators,
    }
    save_tensors(path, content)


def require(path: Path) -> None:
    """Raise a `UsageError` unless there is a checkpoint."""
    if not path.exists():
        config = path.parent / "config.json"
        if config.exists() and b'"model_type"' in config.read_bytes():
            raise UsageError(
                f"{path.parent} is a Hugging Face folder, not a run: turn it back with `milepost "
                f"convert`, or score it with `milepost eval`"
            )
        raise UsageError(
            f"no checkpoint at {path}: give the --out of a training run, or start one there by "
            "training without --resume"
        )


def load(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, on the CPU; the settings as `Settings`."""
    require(path)
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged:
            raise zipfile.BadZipFile(f"wrong check sum of {damaged}")
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
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
            "again with another --out"
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UsageError(
            f"{path} is not a checkpoint of this version of milepost: use the version that wrote "
            "it, or train again with another --out"
        )
    return {**content, "settings": Settings.from_dict(content["settings"])}


def resume(
    path: Path,
    settings: Settings,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> Counters:
    """Put model, optimizer and random generators in the checkpoint's state."""
    content = load(path)
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
    load_model(path, content, model)
    optimizer.load_state_dict(content["optimizer"])
    torch.set_rng_state(content["generators"]["cpu"])
    if device.type == "cuda" and "cuda" in content["generators"]:
        torch.cuda.set_rng_state(content["generators"]["cuda"], device)
    return Counters(**content["counters"])


def load_model(path: Path, content: Mapping[str, Any], model: nn.Module) -> None:
    """Give the model the checkpoint's weights."""
    try:
        model.load_state_dict(content["model"])
    except RuntimeError as error:
        raise UsageError(
            f"{path} does not fit the model of its settings, which this version of milepost "
            "builds otherwise: use the version that wrote it, or train again with another --out"
        ) from error
