"""Train what was added to a model, alone or with LoRA, and keep it in one small folder.

    model = retrofit("meta-llama/Llama-3.2-1B", "cope")
    model = add_adapter(model, lora_rank=8)             # the host is frozen
    ...
    save_adapter(model, "out")
    model = load_adapter(None, "out")                   # the very same logits

The folder has what PEFT reads and writes (with LoRA), and beside it what PEFT does not know of:

    adapter_config.json, adapter_model.safetensors      LoRA, and the encoding's weights
    milepost/config.json                                the model's configuration
    milepost/adapter.json                               the base, and what is trained
    milepost/start.safetensors                          the encoding before it was trained
    milepost/base.safetensors                           a few of the base's weights
    milepost/weights.safetensors                        what was trained, if there is no LoRA

PEFT and transformers would put LoRA on the stock model, and drop the encoding with no more than a
line in a log. So where the base is a stock model, adapter_config.json does not name it, and they
end with an error that says what to call.
"""

import copy
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from milepost.errors import UsageError, unknown
from milepost.files import read_object, write_json, write_whole
from milepost.hf.config import MilepostConfig, settings_of
from milepost.hf.folders import written_whole
from milepost.hf.hosts import HOSTS
from milepost.hf.model import MilepostForCausalLM
from milepost.hf.retrofit import OF_THE_HUB, put_into

if TYPE_CHECKING:
    from peft import PeftModel

OWN = "milepost"
"""The subfolder with what PEFT does not know of; a config.json beside its own would mislead it."""

CONFIG = f"{OWN}/config.json"
RECORD = f"{OWN}/adapter.json"
START = f"{OWN}/start.safetensors"
BASE = f"{OWN}/base.safetensors"
WEIGHTS = f"{OWN}/weights.safetensors"
LORA_CONFIG = "adapter_config.json"
LORA_WEIGHTS = "adapter_model.safetensors"

REMEDY = "load it with milepost.hf.load_adapter(base, folder)"
"""In place of a stock base's name: what AutoPeftModelForCausalLM and AutoModelForCausalLM then say
they cannot find."""

ENCODING = "model.encoding"
"""The name of all that was added."""

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

TIED = {"embed_tokens", "lm_head"}
"""The names of modules that PEFT knows to share their weights."""


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


def check_base(config: MilepostConfig) -> None:
    """A `UsageError` if the base is on this machine and has other sizes than the model by now.

    An adapter of a model whose vocabulary was changed would fit no base.
    """
    base = config.name_or_path or config.made_from
    if base is not None and os.path.isdir(base):
        check_fits(AutoConfig.from_pretrained(base), config)


def refuse_second(model: nn.Module) -> None:
    """A `UsageError` for a model with an adapter."""
    if {"additions", "peft_config"} & set(vars(model)):
        raise UsageError("the model has an adapter already: take it in with merge(model) first")


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


def is_in(path: str, module: str) -> bool:
    """Whether a path is a module's or of a module in it."""
    return f"{path}.".startswith(f"{module}.")


def modules_named(model: nn.Module, argument: str, name: str) -> list[str]:
    """The paths of the modules that a caller names by their path or its end."""
    paths = [path for path, _ in model.named_modules() if f".{path}".endswith(f".{name}")]
    if not name or not paths:
        known = {path.rpartition(".")[2] for path, _ in model.named_modules()}
        raise unknown(
            f"module in {argument}", name, {leaf for leaf in known if leaf.isidentifier()}
        )
    return paths


def shares(model: nn.Module, name: str) -> bool:
    """Whether the weights of a module are those of one outside it, too."""
    module = model.get_submodule(name)
    own, inside = set(module.parameters()), set(module.modules())
    others = (other for other in model.modules() if other not in inside)
    return any(own & set(other.parameters(recurse=False)) for other in others)


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


def base_for_peft(model: MilepostForCausalLM) -> str:
    """The base's name if it is a model with our encoding, which PEFT then loads rightly, else "".

    With the name of a stock model PEFT could not even save: it looks the vocabulary up, by our
    class. So `retrofit` keeps that name under `made_from`.
    """
    return model.config.name_or_path


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


def weights_of(model: nn.Module, modules: Sequence[str]) -> dict[str, Tensor]:
    """The tensors of some of a model's modules, by their names in the model."""
    return {
        f"{module}.{name}": tensor
        for module in modules
        for name, tensor in model.get_submodule(module).state_dict().items()
    }


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


def encoding_of(config: MilepostConfig) -> tuple[str, dict[str, Any] | None]:
    """What tells two encodings from each other."""
    return config.encoding, config.encoding_options


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


def peft() -> Any:
    """The package, which takes seconds to import."""
    try:
        return import_module("peft")
    except ImportError as error:
        raise ImportError("LoRA needs PEFT: pip install 'milepost[peft]'", name="peft") from error


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
