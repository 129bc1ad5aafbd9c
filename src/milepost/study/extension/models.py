"""The models of a study of context extension: a base, and what each row makes of it.

A base that is trained here is a Llama on bytes.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import nn

from milepost.errors import UsageError
from milepost.study.extension.study import Row, Settings
from milepost.training.device import randomness_of


def fresh_base(settings: Settings, seed: int) -> nn.Module:
    """A small Llama on bytes."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=256,
        hidden_size=settings.dim,
        intermediate_size=settings.dim * 8 // 3 // 8 * 8,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        max_position_embeddings=settings.length,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    with randomness_of(seed, torch.device("cpu")):
        return LlamaForCausalLM(config)


def read_base(folder: Path, settings: Settings) -> Any:
    """The base, from its folder."""
    from transformers import AutoModelForCausalLM

    if not (folder / "config.json").exists():
        raise UsageError(
            f"checkpoint: expected a folder that transformers reads, with config.json, got "
            f"{folder}: give the path of a downloaded model"
        )
    dtype = torch.bfloat16 if settings.precision == "bf16" else torch.float32
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)


def extended(model: Any, row: Row, settings: Settings, seed: int) -> nn.Module:
    """The base with what the row puts into it, what the row trains being trainable."""
    from milepost.hf import add_adapter, retrofit

    T = int(settings.length or model.config.max_position_embeddings)
    options = dict(row.encoding_options)
    rope = dict(model.config.rope_parameters or {})
    if row.rope.startswith("interpolated"):
        if rope.get("rope_type", "default") != "default":
            raise UsageError(
                f"checkpoint: expected RoPE that is not scaled yet, got rope_type = "
                f"{rope['rope_type']!r}: give a base model"
            )
        rope = {**rope, "rope_type": "linear", "factor": float(settings.factor)}
        if "theta" in row.rope:
            rope["rope_theta"] = settings.theta
        model.config.rope_parameters = rope
        model.config.name_or_path = ""  # it is not what is in that folder any more
        model.config.max_position_embeddings = settings.factor * T
    if row.rope == "by the encoding":
        options["factor"] = float(settings.factor)
    with randomness_of(seed, torch.device("cpu")):
        added = retrofit(model, row.encoding, encoding_options=options, probe=0)
        return add_adapter(
            added,
            lora_rank=settings.lora_rank if row.lora else None,
            lora_alpha=settings.lora_alpha if row.lora else None,
            train=whole(added),
        )


def whole(model: nn.Module) -> list[str]:
    """The modules that every row trains whole: the token embeddings, and each norm by its path."""
    return [
        path
        for path, module in model.named_modules()
        if path.endswith(".embed_tokens") or path.split(".")[-1].endswith("norm")
        if not path.startswith("model.encoding") and any(True for _ in module.parameters())
    ]


def trained_in(model: nn.Module) -> dict[str, Any]:
    """How many parameters of what are trained, and how many there are."""
    kinds = {"encoding": 0, "lora": 0, "embeddings": 0, "norms": 0, "host": 0}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            kind = (
                "encoding"
                if ".encoding." in name
                else "lora"
                if "lora_" in name
                else "embeddings"
                if "embed_tokens" in name
                else "norms"
                if "norm" in name
                else "host"
            )
            kinds[kind] += parameter.numel()
    return {
        "parameters": {kind: count for kind, count in kinds.items() if count},
        "model": sum(parameter.numel() for parameter in model.parameters()),
    }


@lru_cache
def fingerprint(folder: Path) -> str:
    """A digest of a base's weights: results of one base have the same."""
    found = sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with open(path, "rb") as file:
            while block := file.read(2**24):
                found.update(block)
    return found.hexdigest()[:16]
