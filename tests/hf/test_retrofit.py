"""An encoding put into a model: at first it is the model that it was, or says that it is not."""

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, BertConfig, BertModel

from milepost import encoding
from milepost.errors import UsageError
from milepost.hf import DifferentStartWarning, MilepostForCausalLM, compare, retrofit
from milepost.hf.retrofit import BESIDE_A_TABLE, BESIDE_ROPE

from .tiny import STOCK, label, make, shake, stock, tokens

every_host = pytest.mark.parametrize("host", STOCK)
ROTARY = [host for host in STOCK if host != "gpt2"]
EQUAL = [(host, name) for host in ROTARY for name in BESIDE_ROPE]
EQUAL += [("gpt2", name) for name in BESIDE_A_TABLE]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def logits(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(ids).logits


def silently(*arguments: Any, **settings: Any) -> MilepostForCausalLM:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DifferentStartWarning)
        return retrofit(*arguments, **settings)


@pytest.mark.parametrize(("host", "name"), EQUAL)
def test_it_starts_as_the_model_that_it_was(host: str, name: str) -> None:
    original, ids = stock(host), tokens(2, 35)
    expected = logits(original, ids)
    model = silently(original, encoding=name)
    assert (logits(model, ids) - expected).abs().max() <= 1e-6
    assert model.start.logits <= 1e-6
    assert model.start.agreement == 1


@every_host
@pytest.mark.parametrize("name", ["cope", "fox", "tape"])
def test_in_fp64_it_is_the_same_function(host: str, name: str) -> None:
    original, ids = stock(host).double(), tokens(2, 35)
    shake(original)
    expected = logits(original, ids)
    assert (logits(silently(original, encoding=name), ids) - expected).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("name", "parameter"), [("cope", "table"), ("fox", "strength"), ("tape", "down")]
)
@every_host
def test_what_is_added_starts_to_learn_at_once(host: str, name: str, parameter: str) -> None:
    model, ids = retrofit(stock(host), encoding=name), tokens()
    before = logits(model, ids)
    model.train()(ids, labels=ids).loss.backward()
    moved = [p for n, p in model.named_parameters() if "encoding" in n and n.endswith(parameter)]
    # a head to which forgetting would do harm stays as it is
    learning = [p for p in moved if p.grad.abs().max() > 0]
    assert learning == moved if name != "fox" else learning
    with torch.no_grad():
        for p in moved:
            p.sub_(0.5 * p.grad.sign())
    assert (logits(model.eval(), ids) - before).abs().max() > 1e-5


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default", "rope_theta": 5e5},
        {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
        {
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": 4.0,
            "original_max_position_embeddings": 10,
        },
        LLAMA3,
    ],
    ids=lambda rope: rope["rope_type"],
)
def test_the_hosts_own_angles_are_kept(rope: dict[str, Any], tmp_path: Path) -> None:
    original, ids = stock("llama", rope_parameters=rope), tokens(2, 35)
    shake(original)
    expected = logits(original, ids)
    for name in BESIDE_ROPE:
        model = silently(copy.deepcopy(original), encoding=name)
        torch.testing.assert_close(logits(model, ids), expected, rtol=1e-5, atol=1e-5)
    model = silently(original, encoding="cope")
    torch.testing.assert_close(logits(model, ids), expected, rtol=1e-5, atol=1e-5)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    torch.testing.assert_close(logits(again, ids), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["stick-breaking", "cope", "alibi", "none", "fox"])
def test_without_rope_it_says_how_far_from_the_model_it_is(name: str) -> None:
    original, ids = stock("llama"), tokens(1, 32)
    shake(original)
    twin = copy.deepcopy(original)
    with pytest.warns(DifferentStartWarning, match=rf"with '{name}' in place the model is not at"):
        model = retrofit(original, encoding=name, keep_rope=False)
    assert model.config.encoding == name
    found = compare(model, twin, ids)
    expected, got = logits(twin, ids).double(), logits(model, ids).double()
    assert found.logits == pytest.approx((expected - got).abs().max().item())
    divergence = torch.nn.functional.kl_div(
        got.log_softmax(-1)[0], expected.log_softmax(-1)[0], log_target=True, reduction="batchmean"
    )
    assert found.divergence == pytest.approx(divergence.item(), rel=1e-6)
    assert found.agreement == (expected.argmax(-1) == got.argmax(-1)).double().mean()
    assert found.divergence > 0


@pytest.mark.parametrize("name", ["stick-breaking", "alibi", "yarn"])
def test_what_cannot_stand_beside_the_hosts_positions_is_refused(name: str) -> None:
    host = "gpt2" if name == "yarn" else "llama"
    kept = "table of positions" if name == "yarn" else "RoPE"
    with pytest.raises(
        UsageError, match=rf"{name}' cannot stand beside the host's {kept}, got keep"
    ):
        retrofit(stock(host), encoding=name)


@pytest.mark.parametrize("name", ["yarn", "rope-linear", "rope-ntk"])
def test_a_scaling_goes_on_from_the_hosts_base_and_length(name: str) -> None:
    rope = {"rope_type": "default", "rope_theta": 5e4}
    original, ids = stock("llama", rope_parameters=rope), tokens(2, 35)
    shake(original)
    expected = logits(original, ids)
    same = silently(copy.deepcopy(original), encoding=name, encoding_options={"factor": 1.0})
    torch.testing.assert_close(logits(same, ids), expected, rtol=1e-4, atol=1e-4)
    with pytest.warns(DifferentStartWarning):
        model = retrofit(original, encoding=name, encoding_options={"factor": 2.0})
    assert model.config.max_position_embeddings == 80
    assert model.config.encoding_options["base"] == 5e4
    assert [p for n, p in model.named_parameters() if "encoding" in n] == []


def test_a_scaling_of_a_scaling_needs_a_base() -> None:
    original = stock("llama", rope_parameters=LLAMA3)
    with pytest.raises(UsageError, match=r"scaled already \(llama3\), and 'yarn' would replace it"):
        retrofit(original, encoding="yarn")


def test_an_option_that_is_given_counts_and_the_difference_is_told() -> None:
    original = stock("llama")
    shake(original)
    with pytest.warns(DifferentStartWarning):
        model = retrofit(original, encoding="fox", encoding_options={"strength": 1.0, "bias": 2.0})
    assert model.config.encoding_options == {"strength": 1.0, "bias": 2.0}


def test_a_checkpoint_is_loaded_as_asked(tmp_path: Path) -> None:
    original, ids = stock("qwen3"), tokens()
    original.generation_config.repetition_penalty = 1.3
    original.save_pretrained(tmp_path / "stock")
    model = silently(tmp_path / "stock", encoding="cope", dtype=torch.bfloat16)
    assert model.dtype == torch.bfloat16
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert model.generation_config.repetition_penalty == 1.3
    assert model.config.made_from == str(tmp_path / "stock")
    assert model.config.name_or_path == ""
    assert not model.training
    model = retrofit(tmp_path / "stock", encoding="cope")
    model.save_pretrained(tmp_path / "ours")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    assert (logits(again, ids) - logits(original, ids)).abs().max() <= 1e-6


def test_attention_dropout_is_off_and_the_rest_stays() -> None:
    model = retrofit(stock("gpt2", attn_pdrop=0.1, resid_pdrop=0.2), encoding="cope")
    assert model.config.host_config.attn_pdrop == 0
    assert model.config.host_config.resid_pdrop == 0.2
    assert model.model.h[0].attn.resid_dropout.p == 0.2


def test_a_milepost_model_with_rope_can_be_retrofitted() -> None:
    original, ids = make("llama", "rope"), tokens()
    expected = logits(original, ids)
    model = silently(original, encoding="tape")
    assert model.config.encoding == "tape"
    torch.testing.assert_close(logits(model, ids), expected, rtol=0, atol=1e-11)


def test_a_milepost_model_with_another_encoding_cannot() -> None:
    with pytest.raises(UsageError, match="while its encoding is none or rope, got 'cope'"):
        retrofit(make("llama", "cope"), encoding="fox")


def test_a_model_that_is_no_host_is_named(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(vocab_size=10, intermediate_size=16, **sizes)).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"into a model of type 'bert' yet, only into .*llama"):
        retrofit(tmp_path)


def test_loading_arguments_are_for_checkpoints() -> None:
    with pytest.raises(UsageError, match="dtype: only for a checkpoint, got a model"):
        retrofit(stock("llama"), dtype=torch.bfloat16)


@pytest.mark.parametrize("name", [n for n in encoding.names() if n not in BESIDE_ROPE], ids=label)
def test_every_encoding_can_take_the_place_of_rope(name: str) -> None:
    original = stock("llama")
    shake(original)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = retrofit(original, encoding=name, keep_rope=False)
    assert {w.category for w in caught} == {DifferentStartWarning}
    found = model.generate(tokens(), max_new_tokens=3, do_sample=False, eos_token_id=None)
    assert found.shape == (2, 14)


def test_kernels_may_be_chosen_at_once(tmp_path: Path) -> None:
    stock("llama").save_pretrained(tmp_path)
    model = retrofit(tmp_path, attn_implementation="milepost_reference")
    assert model.config._attn_implementation == "milepost_reference"
    with pytest.raises(UsageError, match="attn_implementation='sdpa' would compute plain"):
        retrofit(tmp_path, attn_implementation="sdpa")


def test_a_model_without_a_head_is_refused() -> None:
    with pytest.raises(UsageError, match="must have a language-modelling head, got LlamaModel"):
        retrofit(stock("llama").model)


def test_peft_by_hand_keeps_the_addition(tmp_path: Path) -> None:
    from peft import LoraConfig, PeftModel, get_peft_model

    stock("llama").save_pretrained(tmp_path / "stock")
    model, ids = retrofit(tmp_path / "stock"), tokens()
    wrapped = get_peft_model(
        model, LoraConfig(target_modules=["q_proj"], modules_to_save=["encoding"])
    )
    before = logits(model, ids)
    shake(wrapped.base_model.model.model.encoding.modules_to_save["default"])
    expected = logits(wrapped, ids)
    assert (expected - before).abs().max() > 1e-3
    wrapped.save_pretrained(tmp_path / "adapter")
    again = PeftModel.from_pretrained(retrofit(tmp_path / "stock"), tmp_path / "adapter")
    assert torch.equal(logits(again, ids), expected)
