"""The configuration: one that holds another, and is read, written and saved as one."""

from pathlib import Path

import pytest
from transformers import AutoConfig, LlamaConfig, Qwen3Config

from milepost import encoding
from milepost.hf import MilepostConfig, MilepostDecoderConfig
from milepost.model import Config

from .tiny import SIZES


@pytest.mark.parametrize("host", SIZES)
def test_it_is_saved_and_read_as_it_was(host: str, tmp_path: Path) -> None:
    options = {"p_max": 7, "shared": True}
    config = MilepostConfig(host=host, encoding="cope", encoding_options=options, **SIZES[host])
    config.save_pretrained(tmp_path)
    again = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(again, MilepostConfig)
    assert again.host == host
    assert again.encoding_options == options
    known = [name for name in config.host_config.to_dict() if name != "_name_or_path"]
    for name in known:
        found, expected = getattr(again.host_config, name), getattr(config.host_config, name)
        assert found == expected, name


def test_the_hosts_settings_are_read_through_it() -> None:
    config = MilepostConfig(host="gpt2", **SIZES["gpt2"])
    assert config.hidden_size == config.n_embd == config.host_config.n_embd == 32
    assert config.num_hidden_layers == 3
    assert config.tie_word_embeddings is True
    with pytest.raises(AttributeError, match="nothing"):
        _ = config.nothing


def test_and_written_through_it() -> None:
    config = MilepostConfig(**SIZES["llama"])
    config.vocab_size, config.use_cache = 99, False
    assert config.host_config.vocab_size == 99
    assert config.host_config.use_cache is False
    config.encoding = "fox"
    assert config.encoding == "fox"


def test_a_host_may_be_given_whole() -> None:
    given = Qwen3Config(**SIZES["qwen3"])
    for config in (
        MilepostConfig(host_config=given),
        MilepostConfig(host_config=given.to_dict()),
        MilepostConfig(host_config=given, host="qwen3"),
    ):
        assert config.host == "qwen3"
        assert config.head_dim == 12
    changed = MilepostConfig(host_config=given, head_dim=16)
    assert changed.head_dim == 16
    assert given.head_dim == 12


def test_the_default_host_is_llama() -> None:
    assert isinstance(MilepostConfig().host_config, LlamaConfig)


def test_names_of_older_configurations_are_read() -> None:
    config = MilepostConfig(**SIZES["llama"], rope_theta=5e5)
    assert config.rope_parameters["rope_theta"] == 5e5


def test_every_layer_has_our_cache() -> None:
    assert MilepostConfig(host="qwen2", **SIZES["qwen2"]).layer_types == ["milepost"] * 3


def test_our_own_decoder_has_all_of_its_settings() -> None:
    config = MilepostDecoderConfig(dim=48, layers=2, heads=3, mlp="swiglu", window=9)
    found = config.model_config("cope", {"p_max": 5})
    assert found == Config(
        vocab_size=256,
        dim=48,
        layers=2,
        heads=3,
        mlp="swiglu",
        window=9,
        encoding="cope",
        encoding_options={"p_max": 5},
    )
    ours = set(Config(vocab_size=1, dim=1, layers=1, heads=1).to_dict())
    apart = {"encoding", "encoding_options", "backend", "max_length"}
    assert ours - apart <= set(config.to_dict())


def test_every_encoding_can_be_asked_for() -> None:
    for name in encoding.names():
        assert MilepostConfig(encoding=name, **SIZES["llama"]).encoding == name
