"""Freeze a model but for what was added to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from milepost.errors import UsageError
from milepost.hf.adapters.base import check_base, sample
from milepost.hf.adapters.host import not_ours, refuse_second
from milepost.hf.adapters.lora import with_lora
from milepost.hf.adapters.modules import ENCODING, is_in, modules_named
from milepost.hf.model import MilepostForCausalLM

if TYPE_CHECKING:
    from peft import PeftModel


@dataclass(frozen=True)
class Additions:
    """What is trained in a model without LoRA.

    Attributes:
        trained: names of the modules.
        start: their parameters before training, by name.
    """

    trained: tuple[str, ...]
    start: dict[str, Tensor]


def add_adapter(
    model: MilepostForCausalLM,
    *,
    lora_rank: int | None = None,
    lora_alpha: float | None = None,
    lora_targets: Sequence[str] | None = None,
    lora_dropout: float = 0.0,
    train: Sequence[str] = (),
) -> "MilepostForCausalLM | PeftModel":
    """Freeze the host, so that what was added to it is trained, alone or with LoRA.

    Args:
        model: of `retrofit` or `MilepostForCausalLM.from_pretrained`.
        lora_rank: of LoRA's matrices; None for no LoRA.
        lora_alpha: LoRA's product is scaled by lora_alpha / lora_rank; 2 · lora_rank if left out.
        lora_targets: names of the modules that get LoRA; if left out, the host's projections of
            queries, keys and values, and of the attention's output.
        lora_dropout: of LoRA's input, while training.
        train: names of modules that are trained as a whole beside the encoding, such as
            "embed_tokens" and "norm"; "input_layernorm" is that of every layer.

    Returns:
        With LoRA a `PeftModel` around the model, else the model itself.

    Raises:
        UsageError: nothing would be trained, a module does not exist, or there is an adapter.
    """
    if not isinstance(model, MilepostForCausalLM):
        raise not_ours("add_adapter", model)
    refuse_second(model)
    check_base(model.config)
    named = [path for name in train for path in modules_named(model, "train", name)]
    if any(True for _ in model.model.encoding.parameters()):
        named.insert(0, ENCODING)
    trained = tuple(dict.fromkeys(named))
    for module in trained:
        if any(is_in(module, other) for other in trained if other != module):
            raise UsageError(
                f"train must name modules that are not in each other, nor in the encoding, got "
                f"{module}, which is in another: leave one out"
            )
    if lora_rank is not None:
        return with_lora(model, trained, lora_rank, lora_alpha, lora_targets, lora_dropout)
    for name, value, default in (
        ("lora_alpha", lora_alpha, None),
        ("lora_targets", lora_targets, None),
        ("lora_dropout", lora_dropout, 0.0),
    ):
        if value != default:
            raise UsageError(
                f"{name} is for LoRA, got {value!r} without lora_rank: give lora_rank, 8 is usual"
            )
    if not trained:
        raise UsageError(
            f"there is nothing to train: the encoding {model.config.encoding!r} has no parameters, "
            f"and lora_rank is None. Give lora_rank, 8 is usual, or name modules in train"
        )
    model.base_sample = sample(model)
    model.requires_grad_(False)
    start = {}
    for module in trained:
        for name, parameter in model.get_submodule(module).named_parameters(module):
            start[name] = parameter.detach().clone()
            parameter.requires_grad_(True)
    model.additions = Additions(trained, start)
    return model
