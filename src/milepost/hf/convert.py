"""A run of `milepost train` as a Hugging Face folder, and back.

    run                     Hugging Face folder
    checkpoint.pt     <->   model.safetensors, config.json: MilepostForCausalLM around our decoder
    config.json       <->   milepost_run.json: what the run was, its settings and how far it came
    (the task)         ->   tokenizer.json (`milepost.hf.tokenizer`), generation_config.json

Both ways the logits are the same to the bit, with the same kernels, and the settings are the same.
What is not kept is what training goes on from: the optimizer's moments and the state of the random
generators. A run that comes back from a Hugging Face folder can be tested and converted again; it
cannot be resumed, as it would go another way than its settings say. The run that was converted can.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from milepost.errors import UsageError
from milepost.evaluate import load_run
from milepost.files import read_json, read_object, write_json
from milepost.hf import tokenizer as tokenizers
from milepost.hf.config import MilepostConfig, MilepostDecoderConfig
from milepost.hf.folders import refuse_existing, written_whole
from milepost.hf.model import MilepostForCausalLM
from milepost.model import Config, Decoder
from milepost.tasks.task import Task
from milepost.training import checkpoint, rundir
from milepost.training.checkpoint import Counters
from milepost.training.device import choose
from milepost.training.settings import Settings

RUN = "milepost_run.json"
FORMAT = "milepost run 1"

Kind = Literal["run", "huggingface"]


def kind(folder: Path) -> Kind:
    """What a folder is: a run of `milepost train`, or a Hugging Face folder.

    Raises:
        UsageError: neither.
    """
    if (folder / rundir.CHECKPOINT).exists():
        return "run"
    if (folder / "milepost" / "adapter.json").exists():
        raise UsageError(
            f"{folder} is an adapter: in Python, "
            f"merge(load_adapter(None, {str(folder)!r})).save_pretrained(...) of milepost.hf makes "
            f"a model of it; put the tokenizer of its base beside it"
        )
    config = folder / "config.json"
    if config.exists():
        values = read_json(config)
        if isinstance(values, dict) and "model_type" in values:
            return "huggingface"
    raise UsageError(
        f"{folder} must be a run of `milepost train`, with {rundir.CHECKPOINT}, or a Hugging Face "
        f"folder, with a config.json that has a model_type; it is neither: check the path"
    )


def to_huggingface(run_folder: Path, out: Path) -> None:
    """Turn a run into a Hugging Face folder.

    Args:
        run_folder: of `milepost train`.
        out: a folder that is not there yet.

    Raises:
        UsageError: there is no run, or `out` exists or cannot be written.
    """
    run_folder, out = Path(run_folder), Path(out)
    refuse_existing(out)
    content = checkpoint.load(run_folder / rundir.CHECKPOINT)
    model, settings, task = load_converted(run_folder)
    about = {
        "format": FORMAT,
        "settings": settings.to_dict(),
        "counters": asdict(Counters(**content["counters"])),
    }
    with written_whole(out) as partial:
        model.save_pretrained(partial)
        tokenizers.of_task(task).save_pretrained(partial)
        write_json(partial / RUN, about)


def to_run(folder: Path, out: Path) -> None:
    """Turn a Hugging Face folder that came from a run back into one, for `milepost evaluate`.

    Args:
        folder: of `to_huggingface`; its weights may have been trained on since.
        out: a folder that is not there yet.

    Raises:
        UsageError: the folder did not come from a run, its model is not the one of the run's
            settings any more, or `out` exists or cannot be written.
    """
    folder, out = Path(folder), Path(out)
    refuse_existing(out)
    settings, counters = read_run(folder)
    with torch.random.fork_rng(devices=[]):  # what is drawn for new weights is not kept
        decoder = to_decoder(from_pretrained(AutoModelForCausalLM, folder))
    check_settings(folder, settings, decoder.config)
    content = {
        "format": checkpoint.FORMAT,
        "settings": settings.to_dict(),
        "model": decoder.state_dict(),
        "counters": asdict(counters),
    }
    with written_whole(out) as partial:
        checkpoint.save_tensors(partial / rundir.CHECKPOINT, content)
        write_json(partial / rundir.CONFIG, settings.to_dict())


def load(
    folder: Path, *, device: str | None = None, attn_implementation: str | None = None
) -> tuple[Any, Any]:
    """The model and the tokenizer of a run, or of any Hugging Face folder, ready for use.

    Args:
        folder: on this machine; nothing is asked of the Hub.
        device: the first GPU, or else the CPU, if None.
        attn_implementation: which kernels run (`milepost.hf.kernels`); a stock model has its own.
    """
    folder, place = Path(folder), choose(device)
    if kind(folder) == "run":
        model: Any
        model, _, task = load_converted(folder)
        if attn_implementation is not None:
            model.set_attn_implementation(attn_implementation)
        return model.to(place).eval(), tokenizers.of_task(task)
    if not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer_config.json")):
        raise UsageError(
            f"{folder} has no tokenizer: save that of the model it was made from beside it, "
            f"AutoTokenizer.from_pretrained(...).save_pretrained({str(folder)!r})"
        )
    chosen = {} if attn_implementation is None else {"attn_implementation": attn_implementation}
    model = from_pretrained(AutoModelForCausalLM, folder, **chosen)
    return model.to(place).eval(), from_pretrained(AutoTokenizer, folder)


def task_of(folder: Path) -> str | None:
    """The task that a run was trained on, or the run that a Hugging Face folder came from."""
    if kind(folder) == "run":
        return rundir.read_settings(folder).task
    return read_run(folder)[0].task if (folder / RUN).exists() else None


def load_converted(run_folder: Path) -> tuple[MilepostForCausalLM, Settings, Task]:
    """The model of a run in transformers, on the CPU; its settings; its task."""
    with torch.random.fork_rng(devices=[]):  # what is drawn for new weights is not kept
        decoder, settings, task = load_run(run_folder, "cpu")
        return from_decoder(decoder), settings, task


def from_decoder(decoder: Decoder) -> MilepostForCausalLM:
    """The same model in transformers, with weights of its own, in evaluation mode on the CPU."""
    given = decoder.config.to_dict()
    encoding, options = given.pop("encoding"), given.pop("encoding_options")
    given["max_position_embeddings"] = given.pop("max_length")
    del given["backend"]  # not of the model: `attn_implementation` chooses the kernels
    config = MilepostConfig(
        host_config=MilepostDecoderConfig(**given), encoding=encoding, encoding_options=options
    )
    model = MilepostForCausalLM(config)
    model.load_state_dict({theirs(name): value for name, value in decoder.state_dict().items()})
    model.generation_config = GenerationConfig()
    return model.eval()


def to_decoder(model: MilepostForCausalLM) -> Decoder:
    """The same model as a `Decoder`, with weights of its own in fp32, in evaluation mode."""
    host = getattr(model.config, "host_config", None)
    if not isinstance(host, MilepostDecoderConfig):
        named = getattr(model.config, "host", model.config.model_type)
        raise UsageError(
            f"a run is a model of `milepost train`, whose host is "
            f"{MilepostDecoderConfig.model_type!r}, got {named!r}: convert another folder"
        )
    if torch.promote_types(model.dtype, torch.float32) != torch.float32:
        raise UsageError(
            f"the weights of a run are in fp32, got {model.dtype}, which would be rounded: "
            f"save model.float() first"
        )
    decoder = Decoder(host.model_config(model.config.encoding, model.config.encoding_options))
    weights = model.state_dict()
    decoder.load_state_dict({name: weights[theirs(name)] for name in decoder.state_dict()})
    return decoder.eval()


def theirs(name: str) -> str:
    """What a parameter of `Decoder` is called in `MilepostForCausalLM`."""
    part, _, rest = name.partition(".")
    if part == "unembedding":
        return f"lm_head.{rest}"
    if part == "encodings":
        return f"model.encoding.layers.{rest}"
    if part == "blocks":
        index, _, rest = rest.partition(".")
        return f"model.blocks.{index}.block.{rest}"
    return f"model.{name}"


def from_pretrained(loader: Any, folder: Path, **options: Any) -> Any:
    """What is in a folder, without asking the Hub; a `UsageError` if it cannot be loaded."""
    try:
        return loader.from_pretrained(folder, local_files_only=True, **options)
    except UsageError:
        raise
    except (OSError, ValueError, SafetensorError) as error:
        raise UsageError(
            f"{folder} cannot be loaded by transformers ({str(error).splitlines()[0]}): restore it "
            f"from a copy, or make it again"
        ) from error


def read_run(folder: Path) -> tuple[Settings, Counters]:
    """What the run was that a Hugging Face folder came from."""
    if not (folder / RUN).exists():
        raise UsageError(
            f"{folder} cannot become a run, for {RUN} is missing, which says what the run was: "
            f"copy it from the folder that `milepost convert` made of the run"
        )
    values = read_object(folder / RUN, ("format", "settings", "counters"))
    if values["format"] != FORMAT:
        raise UsageError(
            f"{folder / RUN} must have format {FORMAT!r}, got {values['format']!r}: use the "
            f"version of milepost that wrote it"
        )
    return Settings.from_dict(values["settings"]), Counters(**values["counters"])


def check_settings(folder: Path, settings: Settings, config: Config) -> None:
    """A `UsageError` unless the run's settings build this very model."""
    expected = Config.from_dict(
        {
            "max_length": config.max_length,
            **settings.model,
            "vocab_size": config.vocab_size,
            "encoding": settings.encoding,
            "encoding_options": dict(settings.encoding_options),
        }
    ).to_dict()
    found = config.to_dict()
    others = [
        f"{name} {expected[name]!r} ≠ {found[name]!r}"
        for name in expected
        if name != "backend" and expected[name] != found[name]
    ]
    if others:
        raise UsageError(
            f"{folder}: config.json is of another model than the settings in {RUN} "
            f"({'; '.join(others)}, the settings' first): convert the folder as it was made"
        )
