"""The Milepost model within what a caller gives, and whether it has an adapter."""

import sys
from typing import Any

from torch import nn

from milepost.errors import UsageError
from milepost.hf.model import MilepostForCausalLM


def host_of(caller: str, model: Any) -> MilepostForCausalLM:
    """The Milepost model in one with an adapter, or a `UsageError`."""
    host = model.get_base_model() if is_peft(model) else model
    if not isinstance(host, MilepostForCausalLM):
        raise not_ours(caller, model)
    if host is model and "additions" not in vars(model):
        raise UsageError(
            f"{caller} needs a model with an adapter, got one without: give what "
            f"add_adapter(model) or load_adapter returned"
        )
    return host


def refuse_second(model: nn.Module) -> None:
    """A `UsageError` for a model with an adapter."""
    if {"additions", "peft_config"} & set(vars(model)):
        raise UsageError("the model has an adapter already: take it in with merge(model) first")


def not_ours(caller: str, model: Any) -> UsageError:
    """The error for another kind of model."""
    return UsageError(
        f"{caller} needs a Milepost model, got {type(model).__name__}: put an encoding into a "
        f"stock model with milepost.hf.retrofit(model, encoding=...), and take a model out of "
        f"what was put around it (accelerator.unwrap_model)"
    )


def is_peft(model: Any) -> bool:
    """Whether PEFT is around a model, found out without importing it."""
    package = sys.modules.get("peft")
    return package is not None and isinstance(model, package.PeftModel)
