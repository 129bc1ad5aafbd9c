"""Small models with hosts of every kind, whose weights are shaken so that nothing stays at zero."""

from typing import Any

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from milepost import encoding
from milepost.hf import MilepostConfig, MilepostForCausalLM

VOCABULARY = 61
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 40,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GROUPED = {"num_key_value_heads": 2, "intermediate_size": 48}
SIZES: dict[str, dict[str, Any]] = {
    "llama": {**COMMON, **GROUPED},
    "mistral": {**COMMON, **GROUPED, "sliding_window": 7},
    "qwen2": {
        **COMMON,
        **GROUPED,
        "use_sliding_window": True,
        "sliding_window": 5,
        "max_window_layers": 1,
    },
    "qwen3": {**COMMON, **GROUPED, "head_dim": 12, "tie_word_embeddings": True},
    "gpt2": COMMON,
    "milepost_decoder": {**COMMON, "num_key_value_heads": 2},
}
STOCK: dict[str, tuple[type, type]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "gpt2": (GPT2Config, GPT2LMHeadModel),
}


def shake(model: torch.nn.Module, size: float = 0.2) -> None:
    """Move every parameter, so that what starts at zero does not stay there."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn_like(parameter))


def make(
    host: str, name: str, options: dict[str, Any] | None = None, **settings: Any
) -> MilepostForCausalLM:
    """A model in fp64 and evaluation mode."""
    torch.manual_seed(0)
    sizes = {**SIZES[host], **settings}
    config = MilepostConfig(host=host, encoding=name, encoding_options=options or {}, **sizes)
    model = MilepostForCausalLM(config).double().eval()
    shake(model)
    return model


def stock(host: str, seed: int = 0, **settings: Any) -> PreTrainedModel:
    """A model of transformers as it is drawn, in evaluation mode."""
    torch.manual_seed(seed)
    config, model = STOCK[host]
    return model(config(**{**SIZES[host], **settings})).eval()


def tokens(batch: int = 2, length: int = 11) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(3, VOCABULARY, (batch, length), generator=generator)


def cases() -> list[tuple[str, dict[str, Any]]]:
    """Every encoding with its defaults and with each of its variants."""
    return [
        (name, options)
        for name in encoding.names()
        for options in ({}, *encoding.find(name).variants)
    ]


def label(value: Any) -> str:
    """How a case is called in the tests' names."""
    if isinstance(value, dict):
        return ",".join(f"{k}={v}" for k, v in value.items()) or "defaults"
    return str(value)
