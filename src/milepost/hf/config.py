"""The configuration of a Milepost model: a host's, and the encoding that is put into it.

    {"model_type": "milepost", "encoding": "cope+rope", "encoding_options": {"p_max": 64},
     "host_config": {"model_type": "llama", "hidden_size": 4096, ...}}

What a host's configuration has (sizes, token ids, `use_cache`) is read and written through this
one.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, GenerationConfig, PreTrainedConfig

from milepost import encoding as encodings
from milepost.errors import UsageError, unknown
from milepost.model import Config

OWN = ("encoding", "encoding_options", "position_table", "made_from", "host", "host_config")


@strict
class MilepostDecoderConfig(PreTrainedConfig):
    """Milepost's own decoder as a host: the settings of `milepost.model.Config` by their names.

    What `milepost convert` makes of a training run. The encoding is not among them: it is the
    `MilepostConfig`'s, as with any host. Nor is `backend`, for which `attn_implementation` stands.
    """

    model_type = "milepost_decoder"
    attribute_map: ClassVar[dict[str, str]] = {
        "hidden_size": "dim",
        "num_hidden_layers": "layers",
        "num_attention_heads": "heads",
        "num_key_value_heads": "key_heads",
        "intermediate_size": "mlp_dim",
        "tie_word_embeddings": "tied",
    }

    vocab_size: int = 256
    dim: int = 256
    layers: int = 4
    heads: int = 4
    key_heads: int | None = None
    head_dim: int | None = None
    mlp: str = "gelu"
    mlp_dim: int | None = None
    norm: str = "layer"
    norm_place: str = "pre"
    tied: bool = True
    bias: bool = True
    dropout: float = 0.0
    qk_norm: bool = False
    kv_shift: bool = False
    output_norm: bool = False
    output_gate: bool = False
    hard_attention: bool = False
    window: int | None = None
    max_position_embeddings: int = 1024  # `max_length`, a name that generation has taken
    init_std: float | None = None
    initializer_range: float = 0.02
    use_cache: bool = True
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def model_config(self, encoding: str, options: Mapping[str, Any]) -> Config:
        """The same as a `milepost.model.Config`, with an encoding."""
        known = {field.name for field in fields(Config)}
        values = {name: getattr(self, name) for name in known & set(self.__dict__)}
        length = self.max_position_embeddings
        return Config(**values, max_length=length, encoding=encoding, encoding_options=options)


@strict
class MilepostConfig(PreTrainedConfig):
    """A host model with a position encoding of Milepost's in place of its own.

    Args:
        encoding: a name from `milepost encodings`. On a host with rotary positions (Llama, Mistral,
            Qwen) `rope`, `cope+rope`, `fox+rope`, `tape`, `shifted-sparse` and `randomized` turn by
            the host's own angles, `rope_parameters`, unless their option `base` says otherwise.
        encoding_options: its options.
        host: "llama" (the default), "mistral", "qwen2", "qwen3", "gpt2" or "milepost_decoder", with
            its sizes as further arguments: `MilepostConfig(host="qwen3", hidden_size=64, ...)`.
        host_config: instead of `host`, its whole configuration, as an object or a dict.
        position_table: GPT-2 alone: whether its own table of positions stays beside the encoding.
        made_from: the checkpoint that the encoding was put into, if there was one.

    Raises:
        UsageError: the encoding, an option, the host or an argument does not exist, or the host has
            a feature that is not supported (`milepost.hf.hosts`).
    """

    model_type = "milepost"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]
    sub_configs: ClassVar[dict[str, Any]] = {"host_config": AutoConfig}

    encoding: str = "cope"
    encoding_options: dict[str, Any] | None = None
    position_table: bool = False
    made_from: str | None = None
    host_config: dict[str, Any] | PreTrainedConfig | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Sort the arguments into the host's and our own, and check ours."""
        from milepost.hf.hosts import HOSTS  # hosts.py needs this file

        given, self.host_config = self.host_config, None
        host = kwargs.pop("host", None)
        kind = HOSTS[host_kind(given, host, HOSTS)].config_class
        known = settings_of(kind)
        of_host = {name: kwargs.pop(name) for name in list(kwargs) if name in known | ROPE}
        if isinstance(given, PreTrainedConfig) and not of_host:
            settings = given
        else:
            values = given.to_dict() if isinstance(given, PreTrainedConfig) else dict(given or {})
            values.pop("model_type", None)
            defaults = HOSTS[kind.model_type].defaults if given is None else {}
            settings = kind(**{**defaults, **values, **of_host})
        HOSTS[kind.model_type].check(settings)
        of_generation = GenerationConfig._get_default_generation_params()
        for name in set(kwargs) - OF_THE_BASE - set(of_generation):
            if not name.startswith("_"):
                raise unknown("argument of MilepostConfig", name, {*OWN, *known})
        super().__post_init__(**kwargs)
        self.encoding_options = dict(self.encoding_options or {})
        self.host_config = settings
        encodings.check(self.encoding, self.encoding_options)
        if self.position_table and HOSTS[kind.model_type].rotary:
            raise UsageError(
                f"position_table is GPT-2's, got position_table=True with a host "
                f"{kind.model_type!r}, which has no table of positions: leave it out"
            )

    @property
    def layer_types(self) -> list[str]:
        """Of the cache: every layer keeps what its encoding says."""
        return ["milepost"] * self.num_hidden_layers

    def validate_layer_type(self) -> None:
        """The base class knows none but its own."""

    @property
    def host(self) -> str:
        """The kind of host."""
        assert isinstance(self.host_config, PreTrainedConfig)
        return self.host_config.model_type

    def __getattr__(self, name: str) -> Any:
        """What is not here is the host's."""
        host = self.__dict__.get("host_config")
        if name.startswith("__") or not isinstance(host, PreTrainedConfig):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(host, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """What is the host's is set there, so that it is saved and built with."""
        host = self.__dict__.get("host_config")
        if isinstance(host, PreTrainedConfig) and name in settings_of(type(host)):
            setattr(host, name, value)
        else:
            super().__setattr__(name, value)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """As the base class, but a stock model's configuration is not taken for ours."""
        kind = config_dict.get("model_type", cls.model_type)
        if kind != cls.model_type:
            raise UsageError(
                f"expected a Milepost checkpoint, got one of model_type {kind!r}: put an encoding "
                f"into it with milepost.hf.retrofit(checkpoint, encoding=...)"
            )
        return super().from_dict(config_dict, **kwargs)


OF_THE_BASE = {
    "attn_implementation",
    "auto_map",
    "experts_implementation",
    "model_type",
    "name_or_path",
    "num_labels",
    "output_attentions",
    "per_layer_config",
    "quantization_config",
    "torch_dtype",
}
"""Arguments of any configuration that are not among its fields."""

ROPE = {"rope_theta", "rope_scaling"}
"""Names of older configurations that transformers still reads."""


def settings_of(kind: type[PreTrainedConfig]) -> set[str]:
    """The names of a host's own settings; what any has, as dtype, is said of the whole."""
    names = {field.name for field in fields(kind)} | set(kind.attribute_map)
    return names - {field.name for field in fields(PreTrainedConfig)}


def host_kind(given: Any, host: str | None, known: Mapping[str, Any]) -> str:
    """The kind of host, from what the caller said of it."""
    if isinstance(given, PreTrainedConfig):
        named = given.model_type
    elif given is not None:
        named = given.get("model_type", host or "llama")
    else:
        named = host or "llama"
    if host is not None and host != named:
        raise UsageError(f"host is {host!r} and host_config is of {named!r}: give one of the two")
    if named not in known:
        raise unknown("host", named, known)
    return named
