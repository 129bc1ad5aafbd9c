"""Take an adapter in for good, or out for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from milepost.hf.adapters.host import host_of, is_peft
from milepost.hf.model import MilepostForCausalLM


def merge(model: nn.Module) -> MilepostForCausalLM:
    """The model with its adapter taken in, to be saved by `save_pretrained`; all of it trainable.

    LoRA's products are added to the host's weights. The model that is given must not be used any
    more.

    Raises:
        UsageError: it has no adapter.
    """
    host = host_of("merge", model)
    if is_peft(model):
        host = model.merge_and_unload()  # type: ignore[operator]  # a PeftModel, by `is_peft`
        vars(host).pop("peft_config", None)
    else:
        del host.additions
    # no longer the base, and a further adapter must not say so
    host.config.name_or_path = host.name_or_path = ""
    host.config.made_from = None
    return host.requires_grad_(True)


@contextmanager
def disabled(model: nn.Module) -> Iterator[None]:
    """For a while the model is what it was before training: the encoding at its start, no LoRA.

    Raises:
        UsageError: it has no adapter.
    """
    host = host_of("disabled", model)
    if is_peft(model):
        # PEFT takes what it switches on again to be trained again
        trainable = {parameter: parameter.requires_grad for parameter in model.parameters()}
        try:
            with model.disable_adapter():  # type: ignore[operator]  # a PeftModel, too
                yield
        finally:
            for parameter, flag in trainable.items():
                parameter.requires_grad_(flag)
        return
    parameters = {host.get_parameter(name): value for name, value in host.additions.start.items()}
    trained = {parameter: parameter.data for parameter in parameters}
    try:
        for parameter, value in parameters.items():
            parameter.data = value.to(parameter.device, parameter.dtype)
        yield
    finally:
        for parameter, value in trained.items():
            parameter.data = value
