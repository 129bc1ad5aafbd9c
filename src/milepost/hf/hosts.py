"""The models that an encoding can be put into: where each keeps its parts, and how they are joined.

A host's modules are its own, made by transformers, under their own names: so a checkpoint's
weights fit as they are, and so do LoRA's usual targets. Only the way from one layer to the next is
ours, once for all hosts, with `attend` from `milepost.attention`:

    x ← x + output(attend(project(norm(x))))
    m = mlp(norm(x));  state ← encoding.carry(state, m);  x ← x + m
"""

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn
from transformers import (
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaModel,
    MistralConfig,
    MistralModel,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2Model,
    Qwen3Config,
    Qwen3Model,
)
from transformers.cache_utils import Cache
from transformers.modeling_layers import GradientCheckpointingLayer

from milepost import encoding
from milepost.attention import attend
from milepost.cache import LayerCache, Memory
from milepost.encoding import Encoding, Positions
from milepost.errors import UsageError
from milepost.hf.cache import LayerMemory
from milepost.hf.config import MilepostConfig, MilepostDecoderConfig
from milepost.hf.rotary import HostRope
from milepost.model import Decoder


class HostLayer(GradientCheckpointingLayer):
    """A layer of a host, with its own modules under their own names, around an encoding."""

    def __init__(
        self, host: "type[Host]", layer: nn.Module | None, index: int, window: int | None
    ) -> None:
        super().__init__()
        self.host = host
        self.index = index
        self.window = window
        for name, module in [] if layer is None else layer.named_children():
            self.add_module(name, module)

    def forward(
        self,
        hidden_states: Tensor,
        state: Any,
        encoding: Encoding,
        positions: Positions,
        backend: str,
        past_key_values: Cache | None = None,
    ) -> tuple[Tensor, Any]:
        """Hidden states (B, S, dim) and the encoding's state, one layer up; both may be trained.

        Without `past_key_values` the layer remembers nothing of earlier calls.
        """
        memory: Memory
        # made here, so that recomputing the layer for its gradients does not remember twice
        memory = (
            LayerCache() if past_key_values is None else LayerMemory(past_key_values, self.index)
        )
        if self.window is not None:
            positions = positions.within(self.window, hidden_states.shape[0])
        return self.host.forward(self, hidden_states, state, encoding, positions, memory, backend)


class Host:
    """What is common to pre-norm Transformers. A subclass says where the parts are.

    Attributes:
        config_class: of the configuration.
        model_class: the stock model without a head.
        embedding, layers, norm: names of the model's parts.
        attention, attention_norm, mlp, mlp_norm: names of a layer's parts.
        output: name of the attention's last projection.
        lora_targets: the attention's projections, as PEFT is given them.
        left_out: parts of the stock model that an encoding takes the place of.
        defaults: settings that differ from the stock defaults where nobody says otherwise.
        refused: arguments that the stock model heeds, and why this one does not.
        rotary: whether the stock model has RoPE.
    """

    config_class: ClassVar[type[PreTrainedConfig]]
    model_class: ClassVar[type[PreTrainedModel]]
    embedding: ClassVar[str]
    layers: ClassVar[str]
    norm: ClassVar[str]
    attention: ClassVar[str]
    attention_norm: ClassVar[str]
    mlp: ClassVar[str] = "mlp"
    mlp_norm: ClassVar[str]
    output: ClassVar[str]
    lora_targets: ClassVar[tuple[str, ...]]
    left_out: ClassVar[tuple[str, ...]] = ()
    defaults: ClassVar[dict[str, Any]] = {}
    refused: ClassVar[dict[str, str]] = {}
    rotary: ClassVar[bool] = True

    @classmethod
    def check(cls, config: Any) -> None:
        """A `UsageError` for a feature of the host that we would get wrong."""
        heads, key_heads = config.num_attention_heads, getattr(config, "num_key_value_heads", None)
        if key_heads and heads % key_heads:
            raise UsageError(
                f"num_key_value_heads must divide num_attention_heads, got {key_heads} (a default, "
                f"if you did not give it) and {heads}: give one of the divisors of {heads}"
            )
        if getattr(config, "attention_dropout", 0):
            raise UsageError(
                f"the ops drop no attention weights, got a host with attention_dropout = "
                f"{config.attention_dropout}: set it to 0"
            )

    @classmethod
    def prepare(cls, config: Any) -> None:
        """Switch off, in a stock model's configuration, what the ops do not have."""
        if getattr(config, "attention_dropout", 0):
            config.attention_dropout = 0.0

    @classmethod
    def facts(cls, config: MilepostConfig) -> encoding.Host:
        """What an encoding may know of the host."""
        heads = config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        facts = encoding.Host(
            dim=config.hidden_size,
            layers=config.num_hidden_layers,
            heads=heads,
            key_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_dim=head_dim,
            max_length=config.max_position_embeddings,
        )
        if not cls.rotary:
            return facts
        return replace(facts, rope=partial(HostRope, facts, config.host_config))

    @classmethod
    def window(cls, config: Any, layer: int) -> int | None:
        """How many keys a token of this layer sees; None for all."""
        return None

    @classmethod
    def build(cls, config: MilepostConfig, stock: nn.Module | None) -> dict[str, nn.Module]:
        """The host's modules by their names, with layers that take an encoding.

        They are those of `stock`, the stock model without its head (or a `MilepostModel`, whose
        encoding is left out), or new ones.
        """
        modules = dict((stock or cls.model_class(config.host_config)).named_children())
        for name in (*cls.left_out, "encoding"):
            if not (name == "wpe" and config.position_table):
                modules.pop(name, None)
        layers = modules[cls.layers]
        assert isinstance(layers, nn.ModuleList)
        modules[cls.layers] = nn.ModuleList(
            HostLayer(cls, layer, i, cls.window(config.host_config, i))
            for i, layer in enumerate(layers)
        )
        return modules

    @classmethod
    def embed(cls, model: Any, tokens: Tensor, positions: Positions) -> Tensor:
        """What goes into the encoding's `begin`: tokens' vectors (B, S, dim), as they are."""
        return tokens

    @classmethod
    def dropout(cls, model: Any, x: Tensor) -> Tensor:
        """What comes between `begin` and the first layer."""
        return x

    @classmethod
    def project(cls, attention: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query (B, H, S, D), key and value (B, G, S, D)."""
        raise NotImplementedError

    @classmethod
    def forward(
        cls,
        layer: Any,
        x: Tensor,
        state: Any,
        encoding: Encoding,
        positions: Positions,
        memory: Memory,
        backend: str,
    ) -> tuple[Tensor, Any]:
        """X (B, S, dim) and the encoding's state, through attention and MLP."""
        attention = getattr(layer, cls.attention)
        normed = getattr(layer, cls.attention_norm)(x)
        out, state = attend(
            encoding,
            *cls.project(attention, normed),
            x=normed,
            positions=positions,
            state=state,
            cache=memory,
            backend=backend,
        )
        out = getattr(attention, cls.output)(out.transpose(1, 2).flatten(2))
        x = x + cls.after(attention, out)
        hidden = getattr(layer, cls.mlp)(getattr(layer, cls.mlp_norm)(x))
        state = encoding.carry(state, hidden)
        return x + hidden, state

    @classmethod
    def after(cls, attention: Any, out: Tensor) -> Tensor:
        """What the host does with the attention's output before the residual."""
        return out


class Llama(Host):
    """Llama: RMS norm, SwiGLU, grouped keys, RoPE."""

    config_class = LlamaConfig
    model_class = LlamaModel
    embedding = "embed_tokens"
    layers = "layers"
    norm = "norm"
    attention = "self_attn"
    attention_norm = "input_layernorm"
    mlp_norm = "post_attention_layernorm"
    output = "o_proj"
    lora_targets = ("q_proj", "k_proj", "v_proj", "o_proj")
    left_out = ("rotary_emb",)

    @classmethod
    def project(cls, attention: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """By head, with norms of queries and keys where the host has them (Qwen3)."""
        query, key, value = (
            part(x).unflatten(-1, (-1, attention.head_dim))
            for part in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        if hasattr(attention, "q_norm"):
            query, key = attention.q_norm(query), attention.k_norm(key)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)


class Mistral(Llama):
    """Mistral: Llama with a sliding window."""

    config_class = MistralConfig
    model_class = MistralModel

    @classmethod
    def window(cls, config: Any, layer: int) -> int | None:
        """The same in every layer."""
        return config.sliding_window


class Qwen2(Llama):
    """Qwen2: Llama with biases on queries, keys and values, and windows in some layers."""

    config_class = Qwen2Config
    model_class = Qwen2Model

    @classmethod
    def window(cls, config: Any, layer: int) -> int | None:
        """Where `layer_types` says so."""
        return config.sliding_window if config.layer_types[layer] == "sliding_attention" else None


class Qwen3(Qwen2):
    """Qwen3: Qwen2 without the biases, and with norms of queries and keys."""

    config_class = Qwen3Config
    model_class = Qwen3Model


class Gpt2(Host):
    """GPT-2: layer norm, GELU, one matrix for query, key and value, a table of positions."""

    config_class = GPT2Config
    model_class = GPT2Model
    embedding = "wte"
    layers = "h"
    norm = "ln_f"
    attention = "attn"
    attention_norm = "ln_1"
    mlp_norm = "ln_2"
    output = "c_proj"
    lora_targets = ("c_attn",)
    left_out = ("wpe",)
    defaults: ClassVar[dict[str, Any]] = {"attn_pdrop": 0.0}
    refused: ClassVar[dict[str, str]] = {"token_type_ids": "only GPT-2 itself embeds them"}
    rotary = False

    @classmethod
    def check(cls, config: Any) -> None:
        """Only what OpenAI's GPT-2 is."""
        if config.attn_pdrop:
            raise UsageError(
                f"the ops drop no attention weights, got a host with attn_pdrop = "
                f"{config.attn_pdrop}: set it to 0"
            )
        for name, expected in (
            ("scale_attn_weights", True),
            ("scale_attn_by_inverse_layer_idx", False),
            ("reorder_and_upcast_attn", False),
            ("add_cross_attention", False),
        ):
            if getattr(config, name) != expected:
                raise UsageError(
                    f"a GPT-2 host must have {name} = {expected}, got {getattr(config, name)}"
                )

    @classmethod
    def prepare(cls, config: Any) -> None:
        """Switch off, in a stock model's configuration, what the ops do not have."""
        config.attn_pdrop = 0.0

    @classmethod
    def embed(cls, model: Any, tokens: Tensor, positions: Positions) -> Tensor:
        """With the rows of the table, if it stays."""
        if not model.config.position_table:
            return tokens
        rows = model.wpe.num_embeddings
        if positions.bound > rows and (last := int(positions.index.max())) >= rows:
            raise UsageError(
                f"the host's table of positions ends after {rows} tokens, got a token at position "
                f"{last}: give shorter text, or retrofit with keep_rope=False"
            )
        return tokens + model.wpe(positions.index)

    @classmethod
    def dropout(cls, model: Any, x: Tensor) -> Tensor:
        """The embedding's."""
        return model.drop(x)

    @classmethod
    def project(cls, attention: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """From one matrix for all three."""
        query, key, value = (
            part.unflatten(-1, (attention.num_heads, attention.head_dim)).transpose(1, 2)
            for part in attention.c_attn(x).chunk(3, dim=-1)
        )
        return query, key, value

    @classmethod
    def after(cls, attention: Any, out: Tensor) -> Tensor:
        """The branch's dropout."""
        return attention.resid_dropout(out)


class OwnDecoder(Host):
    """Milepost's own decoder: what was trained by `milepost train`."""

    config_class = MilepostDecoderConfig
    embedding = "embedding"
    layers = "blocks"
    norm = "norm"
    lora_targets = ("query", "key", "value", "output")
    rotary = False

    @classmethod
    def build(cls, config: MilepostConfig, stock: nn.Module | None) -> dict[str, nn.Module]:
        """The modules of a `Decoder`, whose blocks take an encoding as they are."""
        assert isinstance(config.host_config, MilepostDecoderConfig)
        decoder = stock or Decoder(config.host_config.model_config("none", {}))
        modules = dict(decoder.named_children())
        for name in ("unembedding", "encodings", "encoding"):
            modules.pop(name, None)
        window = config.host_config.window
        layers = modules["blocks"]
        assert isinstance(layers, nn.ModuleList)
        modules["blocks"] = nn.ModuleList(
            OwnLayer(cls, getattr(layer, "block", layer), i, window)
            for i, layer in enumerate(layers)
        )
        return modules

    @classmethod
    def dropout(cls, model: Any, x: Tensor) -> Tensor:
        """The embedding's."""
        return model.dropout(x)

    @classmethod
    def forward(
        cls,
        layer: Any,
        x: Tensor,
        state: Any,
        encoding: Encoding,
        positions: Positions,
        memory: Memory,
        backend: str,
    ) -> tuple[Tensor, Any]:
        """The block's own way."""
        return layer.block(x, encoding, positions, state, memory, backend)


class OwnLayer(HostLayer):
    """A block of a `Decoder`."""

    def __init__(self, host: type[Host], block: nn.Module, index: int, window: int | None) -> None:
        super().__init__(host, None, index, window)
        self.block = block


HOSTS: dict[str, type[Host]] = {
    host.config_class.model_type: host for host in (Llama, Mistral, Qwen2, Qwen3, Gpt2, OwnDecoder)
}
"""The hosts by their `model_type`."""
