"""Adapters: what is trained and what is not, and a folder from which the same model comes back."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, LlamaForCausalLM

from milepost.errors import UsageError
from milepost.hf import (
    DifferentStartWarning,
    MilepostConfig,
    MilepostForCausalLM,
    add_adapter,
    disabled,
    load_adapter,
    merge,
    retrofit,
    save_adapter,
)
from milepost.hf.adapters import files, save

from .tiny import SIZES, make, stock, tokens

# PEFT asks transformers for it by its old name
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")

# host, encoding, its options, whether the host's positions stay, LoRA's rank, what else is trained
CASES: list[tuple[str, str, dict[str, Any], bool, int | None, list[str]]] = [
    ("llama", "cope", {}, True, None, []),
    ("llama", "cope", {"shared": True}, True, None, ["embed_tokens", "norm"]),
    ("llama", "cope", {"shared": True}, True, 3, []),
    ("llama", "fox", {}, True, None, []),
    ("llama", "fox", {}, True, 3, ["norm", "input_layernorm"]),
    ("llama", "tape", {}, True, 3, []),
    ("llama", "tape", {"variant": "released"}, True, None, ["norm"]),
    ("llama", "yarn", {}, True, 3, []),
    ("llama", "yarn", {}, True, None, ["norm"]),
    ("llama", "fire", {}, False, 3, []),
    ("llama", "fire", {}, False, None, []),
    ("mistral", "shifted-sparse", {}, True, 3, ["embed_tokens", "norm"]),
    ("qwen2", "cope", {}, True, 3, []),
    ("qwen3", "cope", {}, True, 3, ["embed_tokens"]),
    ("qwen3", "cope", {}, True, None, ["embed_tokens"]),
    ("gpt2", "cope", {}, True, 3, ["ln_f"]),
    ("gpt2", "tape", {}, True, None, ["wte"]),
]
every_case = pytest.mark.parametrize(
    ("host", "encoding", "options", "keep_rope", "rank", "train"),
    CASES,
    ids=["-".join(str(part) for part in case if part not in ([], {})) for case in CASES],
)


def logits(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=tokens()).logits


def move(model: nn.Module, size: float = 0.2) -> None:
    """Move what is trained, as an optimizer would."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(size * noise.to(parameter.dtype))


def trainable(model: nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    folder = tmp_path / "checkpoint"
    stock("llama").save_pretrained(folder)
    return str(folder)


@every_case
@pytest.mark.filterwarnings("ignore::milepost.hf.DifferentStartWarning")
def test_a_saved_adapter_is_the_same_model(
    host: str,
    encoding: str,
    options: dict[str, Any],
    keep_rope: bool,
    rank: int | None,
    train: list[str],
    tmp_path: Path,
) -> None:
    stock(host).save_pretrained(tmp_path / "base")
    bare = retrofit(tmp_path / "base", encoding, encoding_options=options, keep_rope=keep_rope)
    before = logits(bare)
    model = add_adapter(bare, lora_rank=rank, train=train)
    assert torch.equal(logits(model), before)
    move(model)
    after = logits(model)
    assert (after - before).abs().max() > 1e-5

    def check_disabled(model: nn.Module) -> None:
        flags = trainable(model)
        with disabled(model):
            assert torch.equal(logits(model), before)
        assert torch.equal(logits(model), after)
        assert trainable(model) == flags

    check_disabled(model)
    save_adapter(model, tmp_path / "adapter")
    again = load_adapter(None, tmp_path / "adapter")
    assert torch.equal(logits(again), after)
    assert not trainable(again)
    check_disabled(again)
    more = load_adapter(tmp_path / "base", tmp_path / "adapter", trainable=True)
    assert trainable(more) == trainable(model)
    assert not more.training
    assert torch.equal(logits(load_adapter(stock(host), tmp_path / "adapter")), after)

    merged = merge(again)
    assert type(merged) is MilepostForCausalLM
    assert trainable(merged) == {name for name, _ in merged.named_parameters()}
    scale = after.abs().max().item()
    torch.testing.assert_close(logits(merged), after, rtol=0, atol=1e-5 * max(1, scale))
    merged.save_pretrained(tmp_path / "merged")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert torch.equal(logits(loaded), logits(merged))


@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("encoding", ["cope", "fox", "tape"])
def test_disabled_is_the_original(encoding: str, rank: int | None) -> None:
    original = logits(stock("llama"))
    model = add_adapter(retrofit(stock("llama"), encoding), lora_rank=rank)
    move(model)
    with disabled(model), disabled(model):
        torch.testing.assert_close(logits(model), original, rtol=0, atol=1e-6)
    with pytest.raises(RuntimeError, match="stop"), disabled(model):
        raise RuntimeError("stop")
    assert (logits(model) - original).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        (None, {"model.encoding"}),
        (2, {"model.encoding", *(f"self_attn.{name}_proj" for name in "qkvo")}),
    ],
)
def test_only_what_was_added_is_trained(rank: int | None, expected: set[str]) -> None:
    model = add_adapter(retrofit(stock("llama"), "cope"), lora_rank=rank).train()
    names = trainable(model)
    assert all(any(part in name for part in expected) for name in names)
    assert all(any(part in name for name in names) for part in expected)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):  # LoRA's A moves only after B has
        model(input_ids=tokens(), labels=tokens()).loss.backward()
        optimizer.step()
    moved = {
        name for name, value in model.named_parameters() if not torch.equal(value, before[name])
    }
    assert moved == names


def test_what_is_trained_beside_the_encoding_is_named_by_whole_names() -> None:
    for rank in (None, 2):
        model = add_adapter(retrofit(stock("llama"), "cope"), lora_rank=rank, train=["norm"])
        names = trainable(model)
        assert sum("norm" in name for name in names) == 1
        model = add_adapter(
            retrofit(stock("llama"), "cope"), lora_rank=rank, train=["input_layernorm"]
        )
        assert sum("layernorm" in name for name in trainable(model)) == 3


def test_lora_goes_where_it_is_told() -> None:
    model = add_adapter(
        retrofit(stock("llama"), "cope"), lora_rank=3, lora_alpha=9, lora_targets=["gate_proj"]
    )
    names = {name for name in trainable(model) if "lora" in name}
    assert len(names) == 2 * 3
    assert all(".mlp.gate_proj." in name for name in names)
    [gate] = {
        id(m): m for n, m in model.named_modules() if n.endswith("layers.0.mlp.gate_proj")
    }.values()
    assert gate.scaling == {"default": 3.0}


@pytest.mark.parametrize("name", ["cope", "fox+rope", "tape"])
def test_of_milepost_s_own_decoder_the_encoding_is_not_given_lora(name: str) -> None:
    options = {"sep_keys": True} if name == "cope" else {}
    config = MilepostConfig(
        host="milepost_decoder",
        encoding=name,
        encoding_options=options,
        **SIZES["milepost_decoder"],
    )
    model = add_adapter(MilepostForCausalLM(config), lora_rank=2)
    adapted = {n for n, m in model.named_modules() if hasattr(m, "lora_A")}
    assert len(adapted) == 4 * config.num_hidden_layers
    assert not any("encoding" in n for n in adapted)


@pytest.mark.parametrize("rank", [None, 2])
def test_a_shared_table_stays_one(rank: int | None, checkpoint: str, tmp_path: Path) -> None:
    model = add_adapter(
        retrofit(checkpoint, "cope", encoding_options={"shared": True}), lora_rank=rank
    )
    save_adapter(model, tmp_path / "adapter")
    for each in (model, load_adapter(None, tmp_path / "adapter", trainable=True)):
        inner = each.get_base_model() if rank else each
        first, last = (inner.model.encoding.of(layer).cope.table for layer in (0, 2))
        assert first is last
        assert first.requires_grad


@pytest.mark.parametrize("rank", [None, 2])
def test_generation_goes_on_with_a_cache(rank: int | None) -> None:
    model = add_adapter(retrofit(stock("llama"), "tape"), lora_rank=rank)
    move(model, 0.5)
    how = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
    found = [
        model.eval().generate(input_ids=tokens(), use_cache=use_cache, **how)
        for use_cache in (True, False)
    ]
    assert torch.equal(*found)


@pytest.mark.parametrize("rank", [None, 2])
def test_in_low_precision_it_comes_back_in_its_own(
    rank: int | None, checkpoint: str, tmp_path: Path
) -> None:
    model = add_adapter(retrofit(checkpoint, "cope", dtype=torch.bfloat16), lora_rank=rank)
    move(model)
    save_adapter(model, tmp_path / "adapter")
    again = load_adapter(None, tmp_path / "adapter")
    assert again.dtype == torch.bfloat16
    assert torch.equal(logits(again), logits(model))
    wide = load_adapter(None, tmp_path / "adapter", dtype=torch.float32)
    assert {parameter.dtype for parameter in wide.parameters()} == {torch.float32}


def test_a_merged_model_can_be_given_another_adapter(checkpoint: str, tmp_path: Path) -> None:
    model = add_adapter(retrofit(checkpoint, "cope"), lora_rank=2)
    move(model)
    merged = merge(model)
    merged.save_pretrained(tmp_path / "merged")
    again = add_adapter(merged, lora_rank=2)
    move(again)
    save_adapter(again, tmp_path / "adapter")
    with pytest.raises(UsageError, match="names no base"):
        load_adapter(None, tmp_path / "adapter")
    loaded = load_adapter(tmp_path / "merged", tmp_path / "adapter")
    assert torch.equal(logits(loaded), logits(again))


def test_peft_and_transformers_do_not_drop_the_encoding(checkpoint: str, tmp_path: Path) -> None:
    from peft import AutoPeftModelForCausalLM

    for rank in (None, 2):
        save_adapter(
            add_adapter(retrofit(checkpoint, "cope"), lora_rank=rank), tmp_path / "adapter"
        )
        for loader in (AutoPeftModelForCausalLM, AutoModelForCausalLM):
            with pytest.raises((OSError, ValueError)) as raised:
                loader.from_pretrained(tmp_path / "adapter")
            if rank:
                assert "milepost.hf.load_adapter" in str(raised.value)


def test_on_a_milepost_checkpoint_peft_and_transformers_load_it_right(tmp_path: Path) -> None:
    from peft import AutoPeftModelForCausalLM

    make("llama", "cope+rope").float().save_pretrained(tmp_path / "base")
    model = add_adapter(MilepostForCausalLM.from_pretrained(tmp_path / "base"), lora_rank=2)
    move(model)
    save_adapter(model, tmp_path / "adapter")
    for loader in (AutoPeftModelForCausalLM, AutoModelForCausalLM):
        assert torch.equal(logits(loader.from_pretrained(tmp_path / "adapter")), logits(model))
    assert torch.equal(logits(load_adapter(None, tmp_path / "adapter")), logits(model))


def test_peft_can_save_and_load_it_too(checkpoint: str, tmp_path: Path) -> None:
    """As transformers' Trainer does."""
    from peft import PeftModel

    model = add_adapter(retrofit(checkpoint, "fox"), lora_rank=2)
    move(model)
    model.save_pretrained(tmp_path / "adapter")
    again = PeftModel.from_pretrained(retrofit(checkpoint, "fox"), tmp_path / "adapter")
    assert torch.equal(logits(again), logits(model))


def test_the_folder_has_the_config_where_peft_does_not_look(
    checkpoint: str, tmp_path: Path
) -> None:
    save_adapter(add_adapter(retrofit(checkpoint, "cope"), lora_rank=2), tmp_path / "adapter")
    names = {
        str(path.relative_to(tmp_path / "adapter")) for path in (tmp_path / "adapter").rglob("*.*")
    }
    assert names == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "milepost/config.json",
        "milepost/adapter.json",
        "milepost/start.safetensors",
        "milepost/base.safetensors",
    }
    config = AutoConfig.from_pretrained(tmp_path / "adapter", subfolder="milepost")
    assert (config.encoding, config.host) == ("cope+rope", "llama")
    assert (
        json.loads((tmp_path / "adapter/milepost/adapter.json").read_text())["base"] == checkpoint
    )


def test_an_adapter_is_replaced_whole_and_nothing_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = add_adapter(retrofit(stock("llama"), "cope"))
    save_adapter(model, tmp_path / "adapter")
    first = logits(model)
    move(model)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(save, "write_tensors", full)
        with pytest.raises(UsageError, match=r"cannot write .*adapter.*free some space"):
            save_adapter(model, tmp_path / "adapter")
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]
    assert torch.equal(logits(load_adapter(stock("llama"), tmp_path / "adapter")), first)
    save_adapter(model, tmp_path / "adapter")
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]
    assert torch.equal(logits(load_adapter(stock("llama"), tmp_path / "adapter")), logits(model))

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes").touch()
    for other in ("mine", "mine/notes"):
        with pytest.raises(UsageError, match="is there and is not an adapter"):
            save_adapter(model, tmp_path / other)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes"]
    (tmp_path / "empty").mkdir()
    save_adapter(model, tmp_path / "empty")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train": ["norms"]}, r"unknown module in train 'norms': did you mean 'norm'"),
        ({"train": [""]}, "unknown module in train ''"),
        ({"lora_rank": 0}, "lora_rank must be 1 or more, .* got 0"),
        ({"lora_rank": 2, "lora_dropout": 1.0}, "lora_dropout must be from 0 to below 1, got 1.0"),
        ({"lora_rank": 2, "lora_targets": ["c_attn"]}, "unknown module in lora_targets 'c_attn'"),
        ({"lora_rank": 2, "lora_targets": []}, "lora_targets names no module"),
        ({"train": ["mlp", "up_proj"]}, r"got model\.layers\.0\.mlp\.up_proj, which is in another"),
        ({"train": ["model"]}, r"got model\.encoding, which is in another"),
        ({"lora_rank": 2, "train": ["self_attn"]}, r"self_attn\.q_proj is trained as a whole"),
        ({"lora_rank": 2, "lora_targets": ["cope"]}, "lora_targets names no module"),
        ({"lora_alpha": 16}, "lora_alpha is for LoRA, got 16 without lora_rank"),
        ({"lora_targets": ["q_proj"]}, "lora_targets is for LoRA"),
        ({"lora_dropout": 0.1}, "lora_dropout is for LoRA"),
    ],
)
def test_what_cannot_be_added(arguments: dict[str, Any], message: str) -> None:
    model = retrofit(stock("llama"), "cope")
    with pytest.raises(UsageError, match=message):
        add_adapter(model, **arguments)
    assert trainable(model) == {name for name, _ in model.named_parameters()}


def test_what_has_no_parameters_cannot_be_trained_alone() -> None:
    with pytest.warns(DifferentStartWarning):
        model = retrofit(stock("llama"), "yarn")
    with pytest.raises(UsageError, match=r"nothing to train: the encoding 'yarn' has no param"):
        add_adapter(model)


def test_tied_weights_that_peft_would_part_are_refused() -> None:
    with pytest.raises(UsageError, match=r"copy .* of model\.wte"):
        add_adapter(retrofit(stock("gpt2"), "cope"), lora_rank=2, train=["wte"])


def test_models_of_another_kind_are_refused(tmp_path: Path) -> None:
    plain = stock("llama")
    for call in (add_adapter, merge, lambda model: save_adapter(model, tmp_path / "adapter")):
        with pytest.raises(UsageError, match=r"got LlamaForCausalLM: .*retrofit"):
            call(plain)
    bare = retrofit(stock("llama"), "cope")
    with pytest.raises(UsageError, match="merge needs a model with an adapter"):
        merge(bare)
    with pytest.raises(UsageError, match="disabled needs a model with an adapter"), disabled(bare):
        pass
    for rank in (None, 2):
        model = retrofit(stock("llama"), "cope")
        add_adapter(model, lora_rank=rank)
        with pytest.raises(UsageError, match="has an adapter already"):
            add_adapter(model)


@pytest.mark.parametrize(
    ("base", "message"),
    [
        (lambda: stock("llama", hidden_size=64), "head_dim = 8, got one with 16"),
        (lambda: stock("llama", num_key_value_heads=4), "num_key_value_heads = 2, got one with 4"),
        (lambda: stock("llama", vocab_size=70), "vocab_size = 61, got one with 70"),
        (lambda: stock("llama", tie_word_embeddings=True), "tie_word_embeddings = False"),
        (lambda: stock("mistral"), "for a host 'llama', got a base 'mistral'"),
        (lambda: make("llama", "fox+rope"), r"\('cope\+rope', .* got a base with \('fox\+rope'"),
        (lambda: make("llama", "cope+rope", {"p_max": 3}), "got a base with .*'p_max': 3"),
    ],
)
def test_a_base_that_does_not_fit_is_refused(base: Any, message: str, tmp_path: Path) -> None:
    for rank in (None, 2):
        save_adapter(add_adapter(retrofit(stock("llama"), "cope"), lora_rank=rank), tmp_path / "a")
        model = base().float()
        before = logits(model)
        with pytest.raises(UsageError, match=message):
            load_adapter(model, tmp_path / "a")
        assert torch.equal(logits(model), before)
        model.save_pretrained(tmp_path / "base")
        with pytest.raises(UsageError, match=message):
            load_adapter(tmp_path / "base", tmp_path / "a")


@pytest.mark.parametrize("rank", [None, 2])
def test_a_base_with_other_weights_is_told(rank: int | None, tmp_path: Path) -> None:
    save_adapter(add_adapter(retrofit(stock("llama"), "cope"), lora_rank=rank), tmp_path / "a")
    other = stock("llama", seed=1)
    with pytest.warns(UserWarning, match="not those that the adapter was trained on"):
        model = load_adapter(other, tmp_path / "a")
    save_adapter(model, tmp_path / "b")
    with pytest.warns(UserWarning, match="not those that the adapter was trained on"):
        load_adapter(stock("llama", seed=1), tmp_path / "b")
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        load_adapter(stock("llama").to(dtype), tmp_path / "a")  # the same, but for rounding


def test_what_may_differ_in_a_base(tmp_path: Path) -> None:
    model = add_adapter(retrofit(stock("gpt2", attn_pdrop=0.1), "cope"))
    save_adapter(model, tmp_path / "adapter")
    again = load_adapter(stock("gpt2", resid_pdrop=0.3, bos_token_id=5), tmp_path / "adapter")
    assert torch.equal(logits(again), logits(model))


def test_what_cannot_be_loaded(checkpoint: str, tmp_path: Path) -> None:
    save_adapter(add_adapter(retrofit(stock("llama"), "cope")), tmp_path / "adapter")
    with pytest.raises(UsageError, match="names no base"):
        load_adapter(None, tmp_path / "adapter")
    with pytest.raises(UsageError, match=r"base '.*nowhere' cannot be loaded: give it as base"):
        load_adapter(tmp_path / "nowhere", tmp_path / "adapter")
    with pytest.raises(UsageError, match="dtype: only for a checkpoint, got a model"):
        load_adapter(stock("llama"), tmp_path / "adapter", dtype="bfloat16")
    with pytest.raises(UsageError, match=r"not an adapter of Milepost's, milepost/adapter.json"):
        load_adapter(None, checkpoint)
    with pytest.raises(UsageError, match="must have a language-modelling head, got LlamaModel"):
        load_adapter(stock("llama").model, tmp_path / "adapter")
    for rank in (None, 2):
        taken = retrofit(stock("llama"), "cope")
        add_adapter(taken, lora_rank=rank)
        with pytest.raises(UsageError, match="has an adapter already"):
            load_adapter(taken, tmp_path / "adapter")


@pytest.mark.parametrize(
    ("rank", "name"),
    [
        (None, "milepost/weights.safetensors"),
        (2, "adapter_model.safetensors"),
        (2, "milepost/start.safetensors"),
    ],
)
def test_damaged_files_are_named(rank: int | None, name: str, tmp_path: Path) -> None:
    save_adapter(
        add_adapter(retrofit(stock("llama"), "cope"), lora_rank=rank), tmp_path / "adapter"
    )
    path = tmp_path / "adapter" / name
    weights = files.read_tensors(path)
    lost = sorted(weights)[0]
    files.write_tensors(path, {key: weights[key] for key in weights if key != lost})
    with pytest.raises(UsageError, match=rf"{name} is damaged .*{lost}"):
        load_adapter(stock("llama"), tmp_path / "adapter")
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(UsageError, match=f"{name} is damaged"):
        load_adapter(stock("llama"), tmp_path / "adapter")
    for lost in ("milepost/config.json", *(["adapter_config.json"] if rank else [])):
        (tmp_path / "adapter" / lost).rename(tmp_path / "kept")
        with pytest.raises(UsageError, match=rf"{lost} is damaged \(it is missing\)"):
            load_adapter(stock("llama"), tmp_path / "adapter")
        (tmp_path / "kept").rename(tmp_path / "adapter" / lost)


def test_without_peft_lora_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ImportError, match=r"pip install 'milepost\[peft\]'"):
        add_adapter(retrofit(stock("llama"), "cope"), lora_rank=2)
    move(add_adapter(retrofit(stock("llama"), "cope")))


def test_peft_is_imported_when_it_is_needed() -> None:
    code = "import sys, milepost.hf; print('peft' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"


def test_a_base_may_turn_by_other_angles_than_the_adapter(tmp_path: Path) -> None:
    """Position interpolation is a setting of the model that is saved, not of the base's weights."""
    stock("llama").save_pretrained(tmp_path / "base")
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    slow = LlamaForCausalLM.from_pretrained(tmp_path / "base", rope_parameters=rope)
    model = retrofit(slow, "cope")
    model.config.made_from = str(tmp_path / "base")
    model = add_adapter(model, lora_rank=2).eval()
    save_adapter(model, tmp_path / "adapter")
    assert torch.equal(logits(load_adapter(None, tmp_path / "adapter")), logits(model))


def test_a_vocabulary_that_changed_since_is_found_before_training(tmp_path: Path) -> None:
    stock("llama").save_pretrained(tmp_path)
    model = retrofit(tmp_path, "cope")
    model.resize_token_embeddings(70)
    with pytest.raises(UsageError, match="for a base with vocab_size = 70, got one with 61"):
        add_adapter(model, lora_rank=2)
