"""Write an adapter."""

import copy
import os
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from milepost.errors import UsageError
from milepost.files import write_json
from milepost.hf.adapters.add import Additions
from milepost.hf.adapters.files import (
    BASE,
    LORA_WEIGHTS,
    OWN,
    RECORD,
    START,
    WEIGHTS,
    is_empty,
    write_tensors,
)
from milepost.hf.adapters.host import host_of
from milepost.hf.adapters.lora import base_for_peft, peft
from milepost.hf.adapters.modules import weights_of
from milepost.hf.adapters.switch import disabled
from milepost.hf.folders import written_whole

REMEDY = "load it with milepost.hf.load_adapter(base, folder)"
"""In place of a stock base's name: what AutoPeftModelForCausalLM and AutoModelForCausalLM then say
they cannot find."""


def save_adapter(model: nn.Module, folder: str | PathLike[str]) -> None:
    """Write what was trained, the base's name and the configuration, whole or not at all.

    An adapter that is there is replaced.

    Raises:
        UsageError: the model has no adapter, or `folder` is there and is not one.
    """
    folder = Path(folder)
    host = host_of("save_adapter", model)
    if folder.exists() and not (folder / RECORD).is_file() and not is_empty(folder):
        raise UsageError(
            f"{folder} is there and is not an adapter of Milepost's: it would be overwritten; "
            f"choose another folder"
        )
    additions: Additions | None = vars(host).get("additions")
    base = host.config.name_or_path or host.config.made_from
    if base is not None and os.path.isdir(base):
        base = os.path.abspath(base)
    record = {
        "base": base,
        "trained": None if additions is None else list(additions.trained),
        "dtype": str(host.dtype).removeprefix("torch."),
    }
    encoding = host.model.encoding
    with disabled(model):
        # PEFT leaves the module that it copied beside the copy
        start = getattr(encoding, "original_module", encoding).state_dict()
    with written_whole(folder, replace=True) as partial:
        host.config.save_pretrained(partial / OWN)
        write_json(partial / RECORD, record)
        write_tensors(partial / START, start)
        write_tensors(partial / BASE, vars(host).get("base_sample", {}))
        if additions is None:
            save_lora(model, partial)
        else:
            write_tensors(partial / WEIGHTS, weights_of(host, additions.trained))


def save_lora(model: Any, folder: Path) -> None:
    """PEFT's two files."""
    name = model.active_adapter
    weights = peft().get_peft_model_state_dict(
        model, adapter_name=name, save_embedding_layers=False
    )
    write_tensors(folder / LORA_WEIGHTS, weights)
    config = copy.deepcopy(model.peft_config[name])
    config.inference_mode = True
    config.base_model_name_or_path = base_for_peft(model.get_base_model()) or REMEDY
    config.save_pretrained(folder)
