"""Where transformers' own paths would be silently wrong: each is loud here, or right."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    QuantizedCache,
    StaticCache,
)
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from milepost import encoding
from milepost.errors import UsageError
from milepost.hf import MilepostConfig, MilepostForCausalLM, kernels
from milepost.hf.cache import KEPT

from .tiny import SIZES, make, stock, tokens


@pytest.mark.parametrize("name", kernels.BACKENDS)
def test_every_kernel_name_has_a_mask(name: str) -> None:
    """Without one transformers drops the mask, and attention is not causal."""
    assert name in ALL_MASK_ATTENTION_FUNCTIONS.valid_keys()
    assert name in ALL_ATTENTION_FUNCTIONS.valid_keys()


@pytest.mark.parametrize("name", ["cope", "tape", "stick-breaking"])
def test_no_token_sees_a_later_one(name: str) -> None:
    model, ids = make("llama", name), tokens()
    changed = ids.clone()
    changed[:, 7] = (ids[:, 7] + 1) % 61
    with torch.no_grad():
        before, after = model(ids).logits, model(changed).logits
    torch.testing.assert_close(before[:, :7], after[:, :7], rtol=0, atol=1e-12)
    assert (before[:, 7:] - after[:, 7:]).abs().amax(-1).min() > 1e-9


def test_a_stock_model_that_names_our_kernels_is_refused() -> None:
    model = LlamaForCausalLM(LlamaConfig(**SIZES["llama"], attn_implementation="milepost"))
    with pytest.raises(
        UsageError, match=r"this is a LlamaAttention, which has no encoding of ours"
    ):
        model(tokens())


@pytest.mark.parametrize("name", ["sdpa", "flash_attention_2", "flex_attention", "paged|eager"])
def test_kernels_that_would_leave_the_encoding_out_are_refused(name: str, tmp_path: Path) -> None:
    expected = rf"attn_implementation='{name.replace('|', '.')}' would compute plain attention"
    model = make("llama", "cope")
    with pytest.raises(UsageError, match=expected):
        model.set_attn_implementation(name)
    model.save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=expected):
        AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation=name)


def test_a_kernel_that_cannot_do_the_encoding_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no kernel for the encoding 'cope-mlp' \(op cope_mlp\)"):
        make("llama", "cope-mlp", attn_implementation="milepost_native")


def test_a_kernel_is_chosen_by_name_and_kept_apart_from_the_maths(tmp_path: Path) -> None:
    model, ids = make("llama", "cope").float(), tokens()
    assert model.config._attn_implementation == "milepost"
    with torch.no_grad():
        expected = model(ids).logits
        for name in ("milepost_reference", "eager"):
            model.set_attn_implementation(name)
            assert model.config._attn_implementation == "milepost_reference"
            torch.testing.assert_close(model(ids).logits, expected, rtol=1e-4, atol=1e-4)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert again.config._attn_implementation == "milepost"
    assert again.config.encoding == "cope"


def test_a_named_kernel_is_the_one_that_runs() -> None:
    model = make("llama", "cope")
    model.set_attn_implementation("milepost_native")
    with pytest.raises(UsageError, match="native refused"):  # it computes in fp32
        model(tokens())


def test_continuous_batching_is_refused() -> None:
    model = make("llama", "cope")
    for call in (model.generate_batch, model.init_continuous_batching):
        with pytest.raises(UsageError, match="paged attention, which would leave the encoding"):
            call([[1, 2, 3]])
    with pytest.raises(UsageError, match="paged attention"):
        model.generate(tokens(), cache_implementation="paged", max_new_tokens=2)


def test_settings_given_while_loading_take_effect(tmp_path: Path) -> None:
    """transformers sets them after the configuration has been made."""
    make("llama", "cope").save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path, encoding="cope+rope", encoding_options={"p_max": 64}
    )
    assert isinstance(model.model.encoding.of(0), encoding.find("cope+rope"))


@pytest.mark.parametrize("layer", ["quantized", "of another model", "too few"])
def test_caches_that_would_lose_what_an_encoding_says_are_refused(layer: str) -> None:
    model, ids = make("llama", "fox"), tokens()
    if layer == "of another model":
        cache = DynamicCache()
        stock("llama")(ids, past_key_values=cache)
        expected = "got DynamicLayer in layer 0"
    elif layer == "too few":
        cache = DynamicCache(config=make("llama", "fox", num_hidden_layers=2).config)
        expected = "must have the model's 3 layers, got 2"
    else:
        with pytest.raises(ValueError, match="invalid layer types"):
            QuantizedCache("fp8", model.config)
        return
    with pytest.raises(UsageError, match=expected):
        model(ids, past_key_values=cache)


def test_the_old_tuples_are_no_cache() -> None:
    with pytest.raises(UsageError, match="must be a cache of transformers, got tuple"):
        make("llama", "fox")(tokens(), past_key_values=((1, 2),))


def test_packed_documents_cannot_be_continued() -> None:
    model = make("llama", "fox")
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(tokens(1, 4), position_ids=torch.tensor([[0, 1, 0, 1]]), past_key_values=cache)
        with pytest.raises(UsageError, match="holds packed documents, none of which can be"):
            model(tokens(1, 1), past_key_values=cache)


def test_a_static_cache_that_is_full_says_so() -> None:
    model = make("llama", "fox")
    cache = StaticCache(config=model.config, max_cache_len=6)
    with torch.no_grad(), pytest.raises(UsageError, match=r"max_cache_len = 6 tokens, got 11"):
        model(tokens(), past_key_values=cache)


def test_a_token_shift_cannot_be_cropped_past_what_it_keeps() -> None:
    settings: dict[str, Any] = {"kv_shift": True, "max_position_embeddings": 4 * KEPT}
    model, ids = make("milepost_decoder", "fox", **settings), tokens(1, KEPT + 20)
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(ids, past_key_values=cache)
        cache.crop(-KEPT)
        found = model(ids[:, -KEPT:], past_key_values=cache).logits
        torch.testing.assert_close(found, model(ids).logits[:, -KEPT:], rtol=0, atol=1e-10)
        with pytest.raises(UsageError, match=f"keeps the last {KEPT} tokens"):
            cache.crop(-KEPT - 1)


@pytest.mark.parametrize("name", ["output_attentions", "cu_seq_lens_q", "block_table"])
def test_arguments_that_cannot_be_heeded_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is not supported, for"):
        make("llama", "cope")(tokens(), **{name: True})


def test_a_stock_checkpoint_is_not_taken_for_ours(tmp_path: Path) -> None:
    stock("llama").save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"got one of model_type 'llama': put an encoding into it"):
        MilepostForCausalLM.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"encoding": "copee"}, "did you mean 'cope'"),
        ({"encodng": "cope"}, "unknown argument of MilepostConfig 'encodng'"),
        ({"encoding_options": {"pmax": 3}}, "did you mean 'p_max'"),
        ({"host": "llamma"}, "did you mean 'llama'"),
        ({"host": "gpt2", "host_config": {"model_type": "llama"}}, "give one of the two"),
        (
            {"attention_dropout": 0.1},
            "drop no attention weights, got a host with attention_dropout",
        ),
        ({"host_config": GPT2Config()}, "got a host with attn_pdrop = 0.1: set it to 0"),
        (
            {"host": "gpt2", "scale_attn_by_inverse_layer_idx": True},
            "must have scale_attn_by_inverse_layer_idx = False, got True",
        ),
    ],
)
def test_settings_that_are_wrong_are_named(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        MilepostConfig(**arguments)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_angles_that_follow_the_length_are_refused_where_they_would_be_used(kind: str) -> None:
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0}
    if kind == "longrope":
        rope |= {"short_factor": [1.0] * 4, "long_factor": [1.0] * 4}
        rope |= {"original_max_position_embeddings": 20}
    with pytest.raises(UsageError, match=f"rope_type is '{kind}', whose angles follow the length"):
        make("llama", "cope+rope", rope_parameters=rope)
    make("llama", "cope", rope_parameters=rope)
    make("llama", "cope+rope", {"base": 1e4}, rope_parameters=rope)


def test_every_parameter_of_tape_has_a_gradient() -> None:
    """The last layer's update would have none, which DDP takes for an error: there is none."""
    model, ids = make("llama", "tape").train(), tokens()
    model(ids, labels=ids).loss.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_saving_with_a_state_dict_of_one_s_own_leaves_it_whole(tmp_path: Path) -> None:
    model = make("llama", "cope")
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    count = len(state)
    model.save_pretrained(tmp_path, state_dict=dict(state))
    assert len(state) == count
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in state.items())


def test_modules_without_parameters_of_their_own_start_right() -> None:
    """transformers draws leaf modules anew: an encoding's must be left as it drew them."""
    torch.manual_seed(0)
    sizes = SIZES["llama"]
    options = {"bias": 5.0, "strength": 0.0}
    config = MilepostConfig(encoding="fox+rope", encoding_options=options, **sizes)
    for model in (MilepostForCausalLM(config), AutoModelForCausalLM.from_config(config)):
        fox = model.model.encoding.of(0).fox
        assert isinstance(fox.gate, nn.Linear)
        assert (fox.gate.bias == 5.0).all()
        assert not fox.strength.any()


@pytest.mark.parametrize("setting", [{"attention_dropout": 0.3}, {"output_attentions": True}])
def test_settings_that_come_late_are_checked_all_the_same(
    setting: dict[str, Any], tmp_path: Path
) -> None:
    make("llama", "cope").save_pretrained(tmp_path)
    with pytest.raises((UsageError, ValueError), match=r"attention"):
        AutoModelForCausalLM.from_pretrained(tmp_path, **setting)


def test_a_document_that_begins_with_a_later_call_is_refused() -> None:
    model, ids = make("llama", "cope"), tokens(2, 12)
    with torch.no_grad():
        cache = model(ids[:, :6], use_cache=True).past_key_values
        for wrong in (torch.arange(6), torch.arange(6) + 100):
            with pytest.raises(
                UsageError, match=r"must go on from the cached tokens, whose last is"
            ):
                model(ids[:, 6:], past_key_values=cache, position_ids=wrong[None])
        model(ids[:, 6:], past_key_values=cache, position_ids=torch.arange(6, 12)[None])


def test_packed_documents_are_noticed_beside_a_mask_too() -> None:
    model, ids = make("llama", "cope"), tokens(1, 4)
    places = torch.tensor([[0, 1, 0, 1]])
    with torch.no_grad():
        mask = torch.ones_like(ids)
        cache = model(ids, position_ids=places, attention_mask=mask, use_cache=True).past_key_values
        with pytest.raises(UsageError, match="holds packed documents"):
            model(ids[:, :1], past_key_values=cache, attention_mask=torch.ones(1, 5))


@pytest.mark.parametrize("kind", [DynamicCache, StaticCache])
def test_a_cache_of_another_encoding_is_refused(kind: type) -> None:
    model, other, ids = make("llama", "fox"), make("llama", "cope"), tokens()
    cache = kind(config=model.config, **({"max_cache_len": 20} if kind is StaticCache else {}))
    with torch.no_grad():
        other(ids, past_key_values=cache)
        with pytest.raises(UsageError, match="holds tokens of another model, without the decay"):
            model(ids[:, :1], past_key_values=cache)


def test_a_right_padded_prompt_is_refused_at_once() -> None:
    model, ids = make("llama", "cope"), tokens()
    mask = torch.ones_like(ids)
    mask[1, -2:] = 0
    with pytest.raises(UsageError, match="padded at the right, in row 1: pad at the left"):
        model.generate(ids, attention_mask=mask, max_new_tokens=1)


def test_token_types_are_refused_where_the_host_heeds_them() -> None:
    ids = tokens()
    with pytest.raises(UsageError, match="token_type_ids is not supported, for only GPT-2 itself"):
        make("gpt2", "cope")(ids, token_type_ids=torch.zeros_like(ids))
    make("llama", "cope")(ids, token_type_ids=torch.zeros_like(ids))


@pytest.mark.parametrize("wrong", [{"hiden_size": 64}, {"num_layers": 2}, {"position_table": True}])
def test_misspelt_or_misplaced_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"unknown argument of MilepostConfig|GPT-2's, got"):
        MilepostConfig(host="llama", **wrong)
