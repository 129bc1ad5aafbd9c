"""The files of an adapter."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor

from milepost.errors import UsageError
from milepost.files import write_whole

OWN = "milepost"
"""The subfolder with what PEFT does not know of; a config.json beside its own would mislead it."""

CONFIG = f"{OWN}/config.json"
RECORD = f"{OWN}/adapter.json"
START = f"{OWN}/start.safetensors"
BASE = f"{OWN}/base.safetensors"
WEIGHTS = f"{OWN}/weights.safetensors"
LORA_CONFIG = "adapter_config.json"
LORA_WEIGHTS = "adapter_model.safetensors"


def is_empty(folder: Path) -> bool:
    """Whether a path is a folder with nothing in it."""
    return folder.is_dir() and next(folder.iterdir(), None) is None


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a file of safetensors; tensors may share memory."""
    # a copy of each, for safetensors refuses what shares memory
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_whole(path, lambda file: file.write(safetensors.save(copies, {"format": "pt"})))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors in a file of safetensors."""
    try:
        return safetensors.load_file(path)
    except (OSError, SafetensorError) as error:
        raise damaged(path, str(error)) from error


def check_names(path: Path, given: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """A file has the tensors that it must have, or a `UsageError`."""
    if different := sorted(set(given) ^ set(expected)):
        raise damaged(path, f"missing or not expected: {', '.join(different)}")


def damaged(path: Path, how: str) -> UsageError:
    """The error for a file of an adapter that cannot be what was written."""
    return UsageError(
        f"{path} is damaged ({how}): restore it from a copy, or save the adapter again"
    )
