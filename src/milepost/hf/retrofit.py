"""Put an encoding into a model that was trained without it.

What is added starts at zero wherever an encoding allows, so that the model is at first the very
one that it was, and training goes on from there:

    cope      a table of zeros beside the host's own positions          z_i[p] = 0
    fox       gates to the power α, α = 0                               log f = 0
    tape      positions that start as the host's rotations, W₂ = 0      e_n = R_n

An encoding that takes the place of the host's positions (`keep_rope=False`), or that changes them
(YaRN and the other scalings) or the softmax (stick-breaking), cannot start so. `retrofit` measures
the difference on a few tokens, and says so.
"""

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from milepost import encoding as encodings
from milepost.encodings.rope import Rope
from milepost.errors import UsageError
from milepost.hf.config import MilepostConfig
from milepost.hf.hosts import HOSTS
from milepost.hf.model import MilepostForCausalLM

BESIDE_ROPE: dict[str, tuple[str, dict[str, Any]]] = {
    "cope": ("cope+rope", {}),
    "cope+rope": ("cope+rope", {}),
    "fox": ("fox+rope", {"strength": 0.0, "bias": 5.0}),
    "fox+rope": ("fox+rope", {"strength": 0.0, "bias": 5.0}),
    "tape": ("tape", {}),
    "rope": ("rope", {}),
    "shifted-sparse": ("shifted-sparse", {}),
}
"""What an encoding becomes beside a host's own RoPE, and with which options."""

BESIDE_A_TABLE: dict[str, tuple[str, dict[str, Any]]] = {
    "cope": ("cope", {}),
    "cope-mlp": ("cope-mlp", {}),
    "cope-alibi": ("cope-alibi", {"slopes": "learned"}),
    "fox": ("fox", {"strength": 0.0, "bias": 5.0}),
    "tape": ("tape", {"initial": "identity"}),
    "none": ("none", {}),
}
"""The same beside a host's table of positions, or beside none."""

BESIDE = {"rope": BESIDE_ROPE, "table": BESIDE_A_TABLE, "none": BESIDE_A_TABLE}
"""By what the host knows positions by."""

SCALINGS = ("yarn", "rope-linear", "rope-ntk")
"""Other angles in place of the host's RoPE: no parameters, but not the same model."""

PROBE = 32
"""Tokens on which a retrofitted model is compared with the one it was."""


OF_THE_HUB = ("cache_dir", "force_download", "local_files_only", "revision", "token")
"""What of `loading` concerns the configuration, too."""


class DifferentStartWarning(UserWarning):
    """A retrofitted model that is not at first the one that it was."""


@dataclass(frozen=True)
class Difference:
    """How far two models are from each other on the same tokens.

    Attributes:
        logits: the largest |difference| of a logit.
        largest: the largest |logit| of the original.
        divergence: mean KL divergence of the next-token distributions from the original's, in nats.
        agreement: share of positions at which both find the same token likeliest.
        tokens: on how many.
    """

    logits: float
    largest: float
    divergence: float
    agreement: float
    tokens: int


def compare(model: nn.Module, original: nn.Module, tokens: Tensor) -> Difference:
    """How far `model` is from `original` on tokens (B, S); both are called with `input_ids`.

    Raises:
        UsageError: the two share weights, as a model and the one that `retrofit` took over do: what
            was trained in one would have changed the other.
    """
    shared = {p.data_ptr() for p in original.parameters() if p.numel()}
    if any(p.data_ptr() in shared for p in model.parameters() if p.numel()):
        raise UsageError(
            "model and original share their weights, so that what was trained in one is in both: "
            "load the original again, or give copy.deepcopy(original) to retrofit"
        )
    return difference(model, original, tokens)


def difference(model: nn.Module, original: nn.Module, tokens: Tensor) -> Difference:
    """What `compare` returns, also of two models that share their weights."""
    with torch.inference_mode(), evaluating(model), evaluating(original):
        found = model(input_ids=tokens, use_cache=False).logits.double()
        expected = original(input_ids=tokens, use_cache=False).logits.double()
    log_found, log_expected = found.log_softmax(-1), expected.log_softmax(-1)
    divergence = (log_expected.exp() * (log_expected - log_found)).sum(-1).mean()
    return Difference(
        logits=(found - expected).abs().max().item(),
        largest=expected.abs().max().item(),
        divergence=max(divergence.item(), 0.0),
        agreement=(found.argmax(-1) == expected.argmax(-1)).double().mean().item(),
        tokens=tokens.numel(),
    )


class evaluating:  # noqa: N801, it is used as a function
    """A model in evaluation mode for a while."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.modes = {module: module.training for module in model.modules()}

    def __enter__(self) -> None:
        self.model.eval()

    def __exit__(self, *_: object) -> None:
        for module, training in self.modes.items():
            module.training = training


def retrofit(
    checkpoint_or_model: str | PathLike[str] | PreTrainedModel,
    encoding: str = "cope",
    *,
    encoding_options: Mapping[str, Any] | None = None,
    keep_rope: bool = True,
    probe: int = PROBE,
    **loading: Any,
) -> MilepostForCausalLM:
    """A model of transformers with an encoding put into it.

    Args:
        checkpoint_or_model: a Llama, Mistral, Qwen2, Qwen3 or GPT-2 checkpoint (a folder, or a name
            on the Hub), or such a model with a language-modelling head. A model is taken over: its
            modules become the new model's, and it must not be used any more. So is a Milepost model
            with the encoding none or rope.
        encoding: a name from `milepost encodings`. With `keep_rope`, one of `BESIDE_ROPE`, of
            `BESIDE_A_TABLE` (GPT-2), or a scaling of RoPE.
        encoding_options: its options. What makes the start equal is set, unless it is given here:
            `strength=0.0` of fox, `initial="identity"` of tape on GPT-2.
        keep_rope: whether the host's own positions, RoPE or GPT-2's table, stay beside the
            encoding. Without them the model starts as another one.
        probe: on how many random tokens to compare the model with what it was; 0 for not at all.
        **loading: for `AutoModelForCausalLM.from_pretrained`: dtype, device_map, revision, ...; and
            `attn_implementation`, one of `milepost.hf.kernels`.

    Returns:
        The model, in the mode, dtype and device of the original. Dropout of attention weights is
        off: the ops have none. `model.start` has what the comparison found.

    Raises:
        UsageError: the host or the encoding is not supported, or the two do not go together.

    Warns:
        DifferentStartWarning: the model is not at first the one that it was, and by how much.
    """
    kernels = loading.pop("attn_implementation", None)  # ours, not the stock model's
    if not isinstance(checkpoint_or_model, PreTrainedModel | str | PathLike):
        raise UsageError(
            f"checkpoint_or_model must be a checkpoint's folder or name, or a model of "
            f"transformers, got {type(checkpoint_or_model).__name__}: of a PEFT model give "
            f"merge_and_unload()"
        )
    if isinstance(checkpoint_or_model, PreTrainedModel):
        if loading:
            raise UsageError(f"{', '.join(loading)}: only for a checkpoint, got a model: leave out")
        stock, name = checkpoint_or_model, checkpoint_or_model.config.name_or_path
    else:
        name = str(checkpoint_or_model)
        asked = {key: loading[key] for key in OF_THE_HUB if key in loading}
        refuse_run(Path(name))
        kind = AutoConfig.from_pretrained(name, **asked).model_type
        if kind not in HOSTS and kind != MilepostConfig.model_type:
            raise no_host(kind)
        stock = AutoModelForCausalLM.from_pretrained(name, **loading)
    if stock.get_output_embeddings() is None:
        raise UsageError(
            f"a model must have a language-modelling head, got {type(stock).__name__}: load it by "
            f"AutoModelForCausalLM"
        )
    config = plan(stock.config, encoding, encoding_options or {}, keep_rope)
    config.made_from = name or None
    config._attn_implementation = kernels
    model = put_into(stock, config)
    model.start = None
    if probe:
        tokens = random_tokens(stock.config, probe).to(model.device)
        model.start = difference(model, stock, tokens)
        if model.start.divergence > rounding(model.dtype):
            warn_of_difference(model.start, config.encoding, equal_starts(stock.config))
    return model


def refuse_run(folder: Path) -> None:
    """A `UsageError` for a folder of `milepost train`, which transformers cannot read."""
    if (folder / "checkpoint.pt").is_file():
        raise UsageError(
            f"{folder} is a run of `milepost train`: turn it into a Hugging Face folder with "
            f"`milepost convert {folder} --out ...` first"
        )


def no_host(kind: str) -> UsageError:
    """The error for a model that an encoding cannot be put into."""
    known = [name for name in HOSTS if name != "milepost_decoder"]
    return UsageError(
        f"an encoding cannot be put into a model of type {kind!r} yet, only into "
        f"{', '.join(known)} and what `milepost convert` makes: take a checkpoint of one of these"
    )


def put_into(stock: PreTrainedModel, config: MilepostConfig) -> MilepostForCausalLM:
    """A model of the configuration around the stock model's modules, in its mode and dtype."""
    model = MilepostForCausalLM(config, stock.base_model, stock.get_output_embeddings())
    first = next(stock.parameters())
    model.model.encoding.to(device=first.device, dtype=first.dtype)
    model.generation_config = copy.deepcopy(stock.generation_config)
    return model.train(stock.training)


def random_tokens(config: PreTrainedConfig, count: int = PROBE) -> Tensor:
    """(1, count) tokens, or as many as the model takes."""
    shape = (1, min(count, config.max_position_embeddings))
    return torch.randint(config.vocab_size, shape, generator=torch.Generator())


def equal_starts(stock: PreTrainedConfig) -> tuple[str, ...]:
    """The encodings that can be put into a model without changing it at the start."""
    return tuple(BESIDE[host_of(stock)[1]])


def rounding(dtype: torch.dtype) -> float:
    """The divergence, in nats, that two ways of computing the same model may have.

    It grows as the square of the rounding: 10⁻¹³ is found in fp32, 2·10⁻⁴ in bf16.
    """
    return max(1e-9, (8 * torch.finfo(dtype).eps) ** 2)


def warn_of_difference(start: Difference, encoding: str, equal: tuple[str, ...]) -> None:
    """Say by how much a model differs from what it was."""
    warnings.warn(
        f"with {encoding!r} in place the model is not at first what it was: on {start.tokens} "
        f"random tokens logits differ by up to {start.logits:.3g} (of {start.largest:.3g}), the "
        f"next-token distribution by {start.divergence:.3g} nats, and {1 - start.agreement:.0%} of "
        f"the likeliest tokens are others. Train all of it, not the addition alone, or take an "
        f"encoding that starts equal, with its own options and keep_rope=True: {', '.join(equal)}",
        DifferentStartWarning,
        stacklevel=3,
    )


def plan(
    stock: PreTrainedConfig, encoding: str, options: Mapping[str, Any], keep_rope: bool
) -> MilepostConfig:
    """The configuration of a stock model with an encoding put into it."""
    encodings.find(encoding)
    host_config, positions = host_of(stock)
    host = HOSTS[host_config.model_type]
    host.prepare(host_config)
    chosen: Mapping[str, Any] = options
    if encoding in SCALINGS and positions == "rope":
        chosen = {**scaled(encoding, host_config, options), **options}
    elif positions == "none":
        chosen = {**BESIDE[positions].get(encoding, (encoding, {}))[1], **options}
    elif keep_rope:
        known = BESIDE[positions]
        kept = {"rope": "RoPE", "table": "table of positions"}[positions]
        if encoding not in known:
            raise UsageError(
                f"encoding {encoding!r} cannot stand beside the host's {kept}, got keep_rope=True: "
                f"choose one of {', '.join(known)}, or keep_rope=False (--drop-rope), which drops "
                f"the {kept} and makes it another model at the start"
            )
        encoding, needed = known[encoding]
        # a Milepost model may turn by angles of its own
        turned = Rope.own(getattr(stock, "encoding_options", None) or {})
        chosen = {**needed, **turned, **options}
    return MilepostConfig(
        host_config=host_config,
        encoding=encoding,
        encoding_options=dict(chosen),
        position_table=keep_rope and positions == "table",
        dtype=stock.dtype,
    )


def host_of(stock: PreTrainedConfig) -> tuple[PreTrainedConfig, str]:
    """A copy of the host's configuration, and what it knows positions by: rope, table or none."""
    if isinstance(stock, MilepostConfig):
        if stock.encoding not in ("none", "rope"):
            raise UsageError(
                f"a Milepost model can be retrofitted while its encoding is none or rope, got "
                f"{stock.encoding!r}: take the model it was made from"
                f"{', ' + stock.made_from if stock.made_from else ''}"
            )
        assert isinstance(stock.host_config, PreTrainedConfig)
        positions = "table" if stock.position_table else stock.encoding
        return copy.deepcopy(stock.host_config), positions
    if stock.model_type not in HOSTS:
        raise no_host(stock.model_type)
    positions = "rope" if HOSTS[stock.model_type].rotary else "table"
    return copy.deepcopy(stock), positions


def scaled(encoding: str, host: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options by which a scaling goes on from the host's own RoPE."""
    parameters = getattr(host, "rope_parameters", None) or {}
    kind = parameters.get("rope_type", "default")
    if kind != "default" and not {"base", "original_length"} & set(options):
        raise UsageError(
            f"the host's RoPE is scaled already ({kind}), and {encoding!r} would replace it: give "
            f"its base (rope_theta is {parameters.get('rope_theta')}) among the options"
        )
    length = host.max_position_embeddings
    factor = options.get("factor", encodings.options(encoding)["factor"])
    host.max_position_embeddings = int(length * factor)
    chosen = {"base": float(parameters.get("rope_theta", Rope.options()["base"]))}
    return {**chosen, "original_length": length} if encoding == "yarn" else chosen
