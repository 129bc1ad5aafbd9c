"""The model that an adapter is made for: what it is known by, and put on."""

import os
import warnings
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from milepost.errors import UsageError
from milepost.hf.adapters.host import refuse_second
from milepost.hf.config import MilepostConfig, settings_of
from milepost.hf.model import MilepostForCausalLM
from milepost.hf.retrofit import OF_THE_HUB, put_into

SAMPLE = 8
"""How many of each matrix's weights are kept, to know the base by."""

FREE = (
    "initializer_range",
    "init_std",
    "max_position_embeddings",
    "pretraining_tp",
    "rope_parameters",
    "use_cache",
)
"""Settings in which a base may differ, for the adapter has its own; so may dropouts, token ids."""


def sample(model: nn.Module) -> dict[str, Tensor]:
    """A few weights of each of the host's parameters, by name, evenly spread."""
    found = {}
    for name, parameter in model.named_parameters():
        # quantised weights are packed, and those on the meta device are nowhere
        if parameter.is_floating_point() and not parameter.is_meta and "encoding." not in name:
            values = parameter.detach().flatten()
            found[name] = values[:: max(1, values.numel() // SAMPLE)][:SAMPLE].to("cpu", copy=True)
    return found


def warn_if_other_weights(known: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    """Say so if a base has other weights than the one that an adapter was trained on.

    It may be meant, where an adapter is put on a base that was trained further. Of a base in
    another dtype the weights are rounded.
    """
    for name in sorted(set(known) & set(found)):
        old, new = known[name], found[name]
        eps = 0.0 if old.dtype == new.dtype else max(torch.finfo(t.dtype).eps for t in (old, new))
        if old.shape != new.shape or not torch.allclose(old.double(), new.double(), eps, eps / 1e3):
            warnings.warn(
                f"the base's weights are not those that the adapter was trained on, {name} among "
                f"them, so that it is another model than the one that was saved: give the base it "
                f"was made for, if this is not meant",
                stacklevel=3,
            )
            return


def check_base(config: MilepostConfig) -> None:
    """A `UsageError` if the base is on this machine and has other sizes than the model by now.

    An adapter of a model whose vocabulary was changed would fit no base.
    """
    base = config.name_or_path or config.made_from
    if base is not None and os.path.isdir(base):
        check_fits(AutoConfig.from_pretrained(base), config)


def check_fits(base: PreTrainedConfig, config: MilepostConfig) -> None:
    """A base is what an adapter was made for, or a `UsageError`."""
    host = base
    if isinstance(base, MilepostConfig):
        same = encoding_of(base) == encoding_of(config)
        if not same and base.encoding not in ("none", "rope"):
            raise UsageError(
                f"the adapter is for {encoding_of(config)}, got a base with {encoding_of(base)}: "
                f"give the model that the encoding was put into"
            )
        host = base.host_config
    expected = config.host_config
    assert isinstance(expected, PreTrainedConfig)
    if host.model_type != expected.model_type:
        raise UsageError(
            f"the adapter is for a host {expected.model_type!r}, got a base {host.model_type!r}: "
            f"give the one it was made for"
        )
    found, wanted = host.to_dict(), expected.to_dict()
    for name in sorted(settings_of(type(expected)) & set(wanted)):
        free = name in FREE or "drop" in name or name.endswith("_token_id")
        if not free and found.get(name) != wanted[name]:
            raise UsageError(
                f"the adapter is for a base with {name} = {wanted[name]!r}, got one with "
                f"{found.get(name)!r}: give the one it was made for"
            )


def encoding_of(config: MilepostConfig) -> tuple[str, dict[str, Any] | None]:
    """What tells two encodings from each other."""
    return config.encoding, config.encoding_options


def on_base(
    base: str | PathLike[str] | PreTrainedModel,
    config: MilepostConfig,
    dtype: str,
    loading: dict[str, Any],
) -> MilepostForCausalLM:
    """The base with the configuration's encoding in it."""
    if isinstance(base, PreTrainedModel):
        if loading:
            raise UsageError(f"{', '.join(loading)}: only for a checkpoint, got a model: leave out")
        refuse_second(base)
        if base.get_output_embeddings() is None:
            raise UsageError(
                f"the base must have a language-modelling head, got {type(base).__name__}: load it "
                f"by AutoModelForCausalLM"
            )
        check_fits(base.config, config)
        stock = base
    else:
        name = str(base)
        try:
            of_base = AutoConfig.from_pretrained(
                name, **{key: loading[key] for key in OF_THE_HUB if key in loading}
            )
        except OSError as error:
            raise UsageError(
                f"the adapter's base {name!r} cannot be loaded: give it as base, a folder or a "
                f"name on the Hub. {error}"
            ) from error
        check_fits(of_base, config)
        stock = AutoModelForCausalLM.from_pretrained(name, **{"dtype": dtype, **loading})
    if isinstance(stock, MilepostForCausalLM) and encoding_of(stock.config) == encoding_of(config):
        return stock
    config.made_from = stock.config.name_or_path or None
    return put_into(stock, config)
