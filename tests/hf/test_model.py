"""What every encoding must do in a model of transformers, whatever the host."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, DynamicCache, StaticCache

import milepost.hf
from milepost import encoding
from milepost.errors import UsageError
from milepost.hf import MilepostConfig, MilepostForCausalLM, MilepostModel
from milepost.model import Config, Decoder

from .tiny import SIZES, VOCABULARY, cases, label, make, shake, tokens

every_case = pytest.mark.parametrize(("name", "options"), cases(), ids=label)
every_encoding = pytest.mark.parametrize("name", encoding.names())
every_host = pytest.mark.parametrize("host", SIZES)
CONTEXTUAL = ("cope", "fox+rope", "stick-breaking", "tape")
NEW = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}


def left_padded(ids: torch.Tensor, count: int = 3) -> dict[str, torch.Tensor]:
    padding = torch.zeros(ids.shape[0], count, dtype=ids.dtype)
    mask = torch.cat((padding, torch.ones_like(ids)), dim=1)
    return {"input_ids": torch.cat((padding, ids), dim=1), "attention_mask": mask}


@every_case
def test_cached_is_uncached(name: str, options: dict[str, Any]) -> None:
    model, ids = make("llama", name, options), tokens()
    with torch.no_grad():
        whole = model(ids, use_cache=False).logits
        for parts in ([11], [6, 1, 1, 3], [1] * 11):
            cache = DynamicCache(config=model.config)
            found = [model(part, past_key_values=cache).logits for part in ids.split(parts, dim=1)]
            torch.testing.assert_close(torch.cat(found, 1), whole, rtol=0, atol=1e-11)


@every_encoding
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"num_beams": 3},
        {"num_beams": 4, "num_return_sequences": 2},
        {"do_sample": True, "top_k": 5},
    ],
    ids=["greedy", "beams", "beams, two returned", "sampled"],
)
def test_generating_with_a_cache_is_generating_without(name: str, how: dict[str, Any]) -> None:
    model, ids = make("llama", name), tokens()
    found = []
    for use_cache in (True, False):
        torch.manual_seed(3)
        found.append(model.generate(ids, use_cache=use_cache, **{**NEW, **how}))
    assert torch.equal(*found)
    assert found[0].shape[1] == 19


@every_encoding
def test_left_padding_changes_nothing(name: str) -> None:
    model, ids = make("llama", name), tokens()
    plain, padded = model.generate(ids, **NEW), model.generate(**left_padded(ids), **NEW)
    assert torch.equal(padded[:, 3:], plain)
    with torch.no_grad():
        torch.testing.assert_close(
            model(**left_padded(ids)).logits[:, 3:], model(ids).logits, rtol=0, atol=1e-11
        )


@every_encoding
def test_a_cropped_cache_goes_on_as_if_nothing_had_been(name: str) -> None:
    model, ids = make("llama", name), tokens()
    assert torch.equal(
        model.generate(ids[:1], prompt_lookup_num_tokens=3, **NEW), model.generate(ids[:1], **NEW)
    )
    with torch.no_grad():
        cache = DynamicCache(config=model.config)
        model(ids, past_key_values=cache)
        cache.crop(-4)
        again = model(ids[:, 7:], past_key_values=cache).logits
        torch.testing.assert_close(again, model(ids).logits[:, 7:], rtol=0, atol=1e-11)


@every_encoding
def test_a_static_cache_gives_the_same(name: str) -> None:
    model, ids = make("llama", name), tokens()
    for beams in (1, 3):
        how = {**NEW, "num_beams": beams}
        static = model.generate(ids, cache_implementation="static", **how)
        assert torch.equal(static, model.generate(ids, **how))


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_an_assistant_drafts_and_the_model_decides(name: str) -> None:
    model, assistant, ids = make("llama", name), make("llama", name, num_hidden_layers=1), tokens()
    found = model.generate(ids[:1], assistant_model=assistant, **NEW)
    assert torch.equal(found, model.generate(ids[:1], **NEW))


@every_encoding
def test_saved_and_loaded_is_the_same_to_the_bit(name: str, tmp_path: Path) -> None:
    model, ids = make("llama", name), tokens()
    model.save_pretrained(tmp_path)
    again, told = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told.values()), told
    assert isinstance(again, MilepostForCausalLM)
    assert again.dtype == torch.float64
    for key, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], tensor), key
    # a file's tensors lie anywhere in memory, and sums of aligned ones may be made in another order
    again = copy.deepcopy(again)
    with torch.no_grad():
        assert torch.equal(again(ids).logits, model(ids).logits)


@every_host
@pytest.mark.parametrize("name", CONTEXTUAL)
def test_every_host_decodes_pads_and_is_saved(host: str, name: str, tmp_path: Path) -> None:
    model, ids = make(host, name), tokens()
    found = model.generate(ids, **NEW)
    assert torch.equal(found, model.generate(ids, use_cache=False, **NEW))
    assert torch.equal(model.generate(**left_padded(ids), **NEW)[:, 3:], found)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(again.generate(ids, **NEW), found)
    tied = again.get_output_embeddings().weight is again.get_input_embeddings().weight
    assert tied == bool(model.config.tie_word_embeddings)


def test_a_fresh_process_needs_one_import(tmp_path: Path) -> None:
    model, ids = make("llama", "cope+rope"), tokens(1)
    model.save_pretrained(tmp_path)
    program = (
        "import sys, torch, milepost.hf; from transformers import AutoModelForCausalLM\n"
        "model = AutoModelForCausalLM.from_pretrained(sys.argv[1])\n"
        "ids = torch.tensor([eval(sys.argv[2])])\n"
        "new = model.generate(ids, max_new_tokens=8, do_sample=False, eos_token_id=None)\n"
        "print(new[0].tolist())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), str(ids[0].tolist())],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip().splitlines()[-1] == str(model.generate(ids, **NEW)[0].tolist())


def test_it_is_known_to_the_auto_classes(tmp_path: Path) -> None:
    model, ids = make("qwen3", "cope"), tokens()
    model.save_pretrained(tmp_path)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), MilepostConfig)
    base = AutoModel.from_pretrained(tmp_path)
    assert isinstance(base, MilepostModel)
    with torch.no_grad():
        logits = model.lm_head(base(ids).last_hidden_state)
        torch.testing.assert_close(logits, model(ids).logits, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["cope", "fox", "tape", "alibi"])
def test_packed_documents_are_read_apart(name: str) -> None:
    model, ids = make("llama", name), tokens(1, 11)
    places = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2]])
    with torch.no_grad():
        packed = model(ids, position_ids=places).logits
        apart = [model(part).logits for part in ids.split([5, 3, 3], dim=1)]
        torch.testing.assert_close(packed, torch.cat(apart, 1), rtol=0, atol=1e-11)


def test_right_padding_leaves_real_tokens_alone() -> None:
    model, ids = make("llama", "cope"), tokens()
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    with torch.no_grad():
        padded = model(ids, attention_mask=mask).logits
        torch.testing.assert_close(padded[1, :8], model(ids[1:, :8]).logits[0], rtol=0, atol=1e-11)
        torch.testing.assert_close(padded[0], model(ids[:1]).logits[0], rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["rope", "cope+rope", "tape", "absolute", "sinusoidal"])
def test_shifted_position_ids_are_heeded(name: str) -> None:
    model, ids = make("llama", name), tokens(1, 6)
    with torch.no_grad():
        plain = model(ids).logits
        shifted = model(ids, position_ids=torch.arange(6)[None] + 20).logits
    by_index = name in ("absolute", "sinusoidal")
    # the host's angles are in fp32: at 20 radians 1e-6
    assert ((plain - shifted).abs().max() > 1e-3) == by_index


def test_ids_past_a_table_are_refused() -> None:
    places = torch.arange(6)[None] + 36
    with pytest.raises(UsageError, match=r"built for 40 tokens, got a token at position 41"):
        make("llama", "absolute")(tokens(1, 6), position_ids=places)
    model = make("gpt2", "cope", position_table=True)
    with pytest.raises(UsageError, match=r"table of positions ends after 40 tokens, got a token"):
        model(tokens(1, 6), position_ids=places)


@pytest.mark.parametrize("name", ["cope", "fox", "tape", "t5", "rope"])
def test_own_decoder_in_transformers_is_the_decoder(name: str) -> None:
    model, ids = make("milepost_decoder", name), tokens()
    config = model.config.host_config.model_config(name, {})
    assert isinstance(config, Config)
    decoder = Decoder(config).double().eval()
    names = {"model.encoding.layers.": "encodings.", "lm_head.": "unembedding.", ".block.": "."}
    state = {}
    for key, tensor in model.state_dict().items():
        for ours, its in names.items():
            key = key.replace(ours, its)
        state[key.removeprefix("model.")] = tensor
    decoder.load_state_dict(state)
    with torch.no_grad():
        assert torch.equal(decoder(ids), model(ids).logits)


def test_the_loss_is_that_of_the_next_token() -> None:
    model, ids = make("llama", "cope"), tokens()
    with torch.no_grad():
        found = model(ids, labels=ids)
        scores = found.logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])
        last = model(ids, logits_to_keep=2).logits
    torch.testing.assert_close(found.loss.double(), -scores.mean(), rtol=1e-6, atol=0)
    torch.testing.assert_close(last, found.logits[:, -2:], rtol=0, atol=1e-12)


def test_hidden_states_are_those_between_the_layers() -> None:
    model, ids = make("llama", "tape"), tokens()
    with torch.no_grad():
        found = model(ids, output_hidden_states=True)
    assert len(found.hidden_states) == 4
    assert torch.equal(model.lm_head(found.hidden_states[-1]), found.logits)


@pytest.mark.parametrize("name", ["cope", "fox+rope", "tape", "stick-breaking", "t5"])
def test_checkpointed_gradients_are_the_gradients(name: str) -> None:
    model, ids = make("llama", name).train(), tokens()
    found = []
    for checkpointing in (None, False, True):
        model.zero_grad()
        if checkpointing is not None:
            model.activation_checkpointing_enable({"use_reentrant": checkpointing})
            model.enable_input_require_grads()
        model(ids, labels=ids, use_cache=False).loss.backward()
        found.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        assert {n for n, _ in model.named_parameters()} == set(found[-1])
    for other in found[1:]:
        for parameter, gradient in found[0].items():
            torch.testing.assert_close(other[parameter], gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["cope", "fox", "tape", "stick-breaking", "alibi"])
def test_it_compiles_as_one_graph(name: str) -> None:
    model, ids = make("llama", name).float(), tokens()
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        for mask in (None, torch.ones_like(ids)):
            found = compiled(ids, attention_mask=mask, use_cache=False).logits
            expected = model(ids, attention_mask=mask, use_cache=False).logits
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_parameters_that_layers_share_stay_shared(tmp_path: Path) -> None:
    model = make("llama", "cope", {"shared": True})
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    tables = {id(again.model.encoding.of(i).table) for i in range(3)}
    assert len(tables) == 1
    assert torch.equal(again.model.encoding.of(2).table, model.model.encoding.of(0).table)


def test_what_a_checkpoint_lacks_starts_as_the_encoding_says(tmp_path: Path) -> None:
    model = make("llama", "rope").float()
    model.save_pretrained(tmp_path)
    again, told = AutoModelForCausalLM.from_pretrained(
        tmp_path, encoding="fox", encoding_options={"bias": 5.0}, output_loading_info=True
    )
    assert told["missing_keys"] == {
        f"model.encoding.layers.{i}.gate.{part}" for i in range(3) for part in ("weight", "bias")
    }
    gate = again.model.encoding.of(1).gate
    assert (gate.bias == 5.0).all()
    assert 0.01 < gate.weight.std() < 0.03
    kept = again.model.layers[0].self_attn.q_proj.weight
    assert torch.equal(kept, model.model.layers[0].self_attn.q_proj.weight)


def test_an_encoding_draws_its_own_weights_and_a_host_the_hosts() -> None:
    torch.manual_seed(0)
    sizes = {**SIZES["gpt2"], "hidden_size": 256, "initializer_range": 0.05}
    model = MilepostForCausalLM(MilepostConfig(host="gpt2", encoding="fox", **sizes))
    assert 0.019 < model.model.encoding.of(0).gate.weight.std() < 0.021
    assert 0.049 < model.model.h[0].attn.c_attn.weight.std() < 0.051
    scaled = 0.05 / 6**0.5  # GPT-2 divides by √(2 · layers)
    assert 0.98 * scaled < model.model.h[0].attn.c_proj.weight.std() < 1.02 * scaled


def test_weights_are_the_hosts_under_their_own_names() -> None:
    model = make("qwen2", "cope+rope")
    names = {name for name, _ in model.named_parameters()}
    assert "model.layers.0.self_attn.q_proj.bias" in names
    assert "model.layers.2.mlp.gate_proj.weight" in names
    assert {name for name in names if "encoding" in name} == {
        f"model.encoding.layers.{i}.cope.table" for i in range(3)
    }


def test_resizing_the_vocabulary_survives_saving(tmp_path: Path) -> None:
    model = make("llama", "cope").float()
    model.resize_token_embeddings(VOCABULARY + 7)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert again.config.vocab_size == again.config.host_config.vocab_size == VOCABULARY + 7
    assert again(tokens()).logits.shape[-1] == VOCABULARY + 7


def test_a_caller_s_own_caches_are_adopted() -> None:
    model, ids = make("llama", "fox"), tokens()
    with torch.no_grad():
        whole = model(ids).logits
        for cache in (
            DynamicCache(),
            DynamicCache(config=model.config),
            StaticCache(config=model.config, max_cache_len=16),
        ):
            found = [model(part, past_key_values=cache).logits for part in ids.split([6, 5], 1)]
            torch.testing.assert_close(torch.cat(found, 1), whole, rtol=0, atol=1e-11)


def test_the_package_names_what_it_has() -> None:
    assert all(hasattr(milepost.hf, name) for name in milepost.hf.__all__)


def test_shaken_models_differ_from_fresh_ones() -> None:
    """That the comparisons above are not between zeros."""
    model, ids = make("llama", "cope"), tokens()
    with torch.no_grad():
        before = model(ids).logits
        shake(model.model.encoding)
        assert (model(ids).logits - before).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["cope", "fox", "tape", "rope"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_low_precision_is_near(name: str, dtype: torch.dtype) -> None:
    model, ids = make("llama", name), tokens()
    with torch.no_grad():
        exact = model(ids).logits
        low = model.to(dtype)
        cache = DynamicCache(config=model.config)
        steps = [low(part, past_key_values=cache).logits for part in ids.split(4, dim=1)]
        for found in (low(ids).logits, torch.cat(steps, 1)):
            assert found.dtype == dtype
            error = (found.double() - exact).abs().max() / exact.abs().max()
            assert error < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("name", ["cope", "fox", "tape"])
def test_compiled_padding_and_documents_are_those_of_eager(name: str) -> None:
    model, ids = make("llama", name).float(), tokens(2, 8)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True, dynamic=False)
    left = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1], [1] * 8])
    right = left.flip(1)
    packed = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3], [0, 1, 0, 1, 2, 3, 4, 5]])
    cases = [{"attention_mask": left}, {"attention_mask": right}, {"position_ids": packed}]
    cases.append({"position_ids": packed, "attention_mask": torch.ones_like(ids)})
    with torch.no_grad():
        for given in cases:
            found = compiled(ids, use_cache=False, **given).logits
            expected = model(ids, use_cache=False, **given).logits
            real = given.get("attention_mask", torch.ones_like(ids)) != 0
            torch.testing.assert_close(found[real], expected[real], rtol=1e-4, atol=1e-5)
        gaps = torch.tensor([[0, 1, 5, 6, 7, 8, 9, 10]] * 2)
        with pytest.raises(RuntimeError, match="position_ids must go up by one"):
            compiled(ids, use_cache=False, position_ids=gaps)


@pytest.mark.parametrize("name", CONTEXTUAL)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_prompts_of_any_lengths_in_chunks(name: str, cache: str) -> None:
    model, ids = make("llama", name), tokens(2, 12)
    ids[0, :9] = 0
    mask = torch.ones_like(ids)
    mask[0, :9] = 0
    how = {**NEW, "attention_mask": mask, "cache_implementation": cache}
    found = model.generate(ids, prefill_chunk_size=4, **how)
    assert torch.equal(found, model.generate(ids, **how))
    assert torch.equal(found[:1, 9:], model.generate(ids[:1, 9:], **NEW))


def test_generation_goes_on_with_the_same_cache() -> None:
    model, ids = make("llama", "fox+rope"), tokens(1)
    cache = DynamicCache(config=model.config)
    first = model.generate(ids, past_key_values=cache, **NEW)
    second = model.generate(first, past_key_values=cache, **NEW)
    assert torch.equal(second, model.generate(ids, **{**NEW, "max_new_tokens": 16}))


def test_vectors_instead_of_tokens() -> None:
    model, ids = make("llama", "tape"), tokens()
    vectors = model.get_input_embeddings()(ids)
    with torch.no_grad():
        assert torch.equal(model(inputs_embeds=vectors).logits, model(ids).logits)
    new = model.generate(inputs_embeds=vectors, **NEW)
    assert torch.equal(new, model.generate(ids, **NEW)[:, 11:])
    with pytest.raises(UsageError, match="give input_ids or inputs_embeds, one of the two"):
        model(ids, inputs_embeds=vectors)
