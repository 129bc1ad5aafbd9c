"""LoRA, by PEFT, around a model whose encoding is trained with it."""

import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from transformers.pytorch_utils import Conv1D

from milepost.errors import UsageError
from milepost.hf.adapters.base import sample
from milepost.hf.adapters.modules import ENCODING, is_in, modules_named, shares
from milepost.hf.hosts import HOSTS
from milepost.hf.model import MilepostForCausalLM

if TYPE_CHECKING:
    from peft import PeftModel

TIED = {"embed_tokens", "lm_head"}
"""The names of modules that PEFT knows to share their weights."""


def with_lora(
    model: MilepostForCausalLM,
    trained: tuple[str, ...],
    rank: int,
    alpha: float | None,
    targets: Sequence[str] | None,
    dropout: float,
) -> "PeftModel":
    """The model with LoRA, and copies of the modules `trained`, trained and saved whole by PEFT."""
    if rank < 1:
        raise UsageError(f"lora_rank must be 1 or more, or None for no LoRA, got {rank}")
    if not 0 <= dropout < 1:
        raise UsageError(f"lora_dropout must be from 0 to below 1, got {dropout}")
    if isinstance(targets, str):
        targets = (targets,)
    chosen = HOSTS[model.config.host].lora_targets if targets is None else tuple(targets)
    paths = [
        path
        for name in chosen
        for path in modules_named(model, "lora_targets", name)
        if not is_in(path, ENCODING)
    ]
    if not paths:
        raise UsageError(
            "lora_targets names no module: name some, leave it out for the host's attention "
            "projections, or leave out lora_rank for no LoRA"
        )
    for path in paths:
        if any(is_in(path, module) for module in trained):
            raise UsageError(
                f"{path} is trained as a whole and cannot have LoRA, too: leave it out of train or "
                f"of lora_targets"
            )
    tied = {name for name in trained if shares(model, name)}
    if tied and not {name.rpartition(".")[2] for name in tied} <= TIED:
        raise UsageError(
            f"beside LoRA, PEFT trains a copy of a module, and of {', '.join(sorted(tied))}, whose "
            f"weights are another's too (tie_word_embeddings), it would part the two: leave it out "
            f"of train, or leave out lora_rank"
        )
    config = peft().LoraConfig(
        task_type="CAUSAL_LM",
        r=rank,
        lora_alpha=2 * rank if alpha is None else alpha,
        lora_dropout=dropout,
        target_modules=list(chosen),
        # an encoding is trained whole, whatever its own modules are called
        exclude_modules=r"(.*\.)?encoding\..*",
        fan_in_fan_out=any(isinstance(model.get_submodule(path), Conv1D) for path in paths),
        modules_to_save=list(trained) or None,
        ensure_weight_tying=bool(tied),
    )
    model.base_sample = sample(model)
    return with_peft(model, config)


def with_peft(model: MilepostForCausalLM, config: Any) -> "PeftModel":
    """PEFT around a model."""
    with warnings.catch_warnings():
        # PEFT asks transformers by a name that it has replaced
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        around: PeftModel = peft().get_peft_model(model, config)
    around.peft_config["default"].base_model_name_or_path = base_for_peft(model)
    return around


def base_for_peft(model: MilepostForCausalLM) -> str:
    """The base's name if it is a model with our encoding, which PEFT then loads rightly, else "".

    With the name of a stock model PEFT could not even save: it looks the vocabulary up, by our
    class. So `retrofit` keeps that name under `made_from`.
    """
    return model.config.name_or_path


def peft() -> Any:
    """The package, which takes seconds to import."""
    try:
        return import_module("peft")
    except ImportError as error:
        raise ImportError("LoRA needs PEFT: pip install 'milepost[peft]'", name="peft") from error
