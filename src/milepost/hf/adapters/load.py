"""Read an adapter, and put it on its base."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor
from transformers import PreTrainedModel

from milepost.errors import UsageError
from milepost.files import read_object
from milepost.hf.adapters.add import add_adapter
from milepost.hf.adapters.base import on_base, sample, warn_if_other_weights
from milepost.hf.adapters.files import (
    BASE,
    CONFIG,
    LORA_CONFIG,
    LORA_WEIGHTS,
    OWN,
    RECORD,
    START,
    WEIGHTS,
    check_names,
    damaged,
    read_tensors,
)
from milepost.hf.adapters.lora import peft, with_peft
from milepost.hf.adapters.modules import ENCODING, weights_of
from milepost.hf.config import MilepostConfig
from milepost.hf.model import MilepostForCausalLM

if TYPE_CHECKING:
    from peft import PeftModel


def load_adapter(
    base: str | PathLike[str] | PreTrainedModel | None,
    folder: str | PathLike[str],
    *,
    trainable: bool = False,
    **loading: Any,
) -> "MilepostForCausalLM | PeftModel":
    """The model that `save_adapter` wrote to `folder`, in evaluation mode.

    Args:
        base: what the adapter was made for: a checkpoint, a model, or None for the checkpoint that
            the folder names. A model is taken over, as by `retrofit`.
        folder: of `save_adapter`.
        trainable: whether to go on training; else all parameters are frozen.
        **loading: for `from_pretrained` of the base: dtype (if left out, the one it had when the
            adapter was saved), device_map, revision, ...

    Returns:
        With LoRA a `PeftModel`, else a `MilepostForCausalLM`.

    Raises:
        UsageError: the folder is not an adapter, or the base does not fit it.
    """
    folder = Path(folder)
    if not (folder / RECORD).is_file():
        if (folder / LORA_CONFIG).is_file():
            raise UsageError(
                f"{folder} was written by PEFT or by Trainer, which know no encoding's settings: "
                f"make the model again with retrofit(...), put it on with "
                f"peft.PeftModel.from_pretrained(model, {str(folder)!r}), and save_adapter then"
            )
        raise UsageError(
            f"{folder} is not an adapter of Milepost's, {RECORD} is missing: give a folder that "
            f"save_adapter wrote"
        )
    record = read_object(folder / RECORD, ("base", "trained", "dtype"))
    trained = record["trained"]
    for name in (CONFIG, *([LORA_CONFIG] if trained is None else [])):
        if not (folder / name).is_file():
            raise damaged(folder / name, "it is missing")
    config = MilepostConfig.from_pretrained(folder / OWN)
    if base is None:
        base = record["base"]
    if base is None:
        raise UsageError(
            f"{folder} names no base, as its model was not made from a checkpoint: give the base"
        )
    start, known = read_tensors(folder / START), read_tensors(folder / BASE)
    weights = read_tensors(folder / (LORA_WEIGHTS if trained is None else WEIGHTS))
    model = on_base(base, config, record["dtype"], loading)
    warn_if_other_weights(known, sample(model))
    if not model.config.name_or_path:
        encoding = model.model.encoding
        check_names(folder / START, start, encoding.state_dict())
        encoding.load_state_dict(start)
    if trained is None:
        model.base_sample = known
        return load_lora(model, folder, weights, trainable).eval()
    check_names(folder / WEIGHTS, weights, weights_of(model, trained))
    add_adapter(model, train=[name for name in trained if name != ENCODING])
    model.base_sample = known
    model.load_state_dict(weights, strict=False)
    if not trainable:
        model.requires_grad_(False)
    return model.eval()


def load_lora(
    model: MilepostForCausalLM, folder: Path, weights: dict[str, Tensor], trainable: bool
) -> "PeftModel":
    """Put the folder's LoRA, and the modules that were trained with it, on a model."""
    package = peft()
    config = package.PeftConfig.from_pretrained(folder)
    config.base_model_name_or_path = None
    config.inference_mode = not trainable
    around = with_peft(model, config)
    expected = package.get_peft_model_state_dict(around, save_embedding_layers=False)
    check_names(folder / LORA_WEIGHTS, weights, expected)
    package.set_peft_model_state_dict(around, weights)
    return around
