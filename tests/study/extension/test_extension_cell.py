"""Context extension on models too small to learn, run for what is trained, measured and kept."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from milepost import studies
from milepost.errors import UsageError
from milepost.report import extension as report
from milepost.study import work
from milepost.study.executors.local import Local
from milepost.study.extension import models
from milepost.study.extension import run as running
from milepost.study.extension.cell import ExtensionCell
from milepost.study.extension.data import Data
from milepost.study.extension.run import Schedule
from milepost.study.extension.study import BASE
from milepost.study.figures import Figures
from milepost.study.run import run
from milepost.tasks import passkey

STUDY = studies.load("tape-table2")

TINY = {
    "dim": 16,
    "layers": 2,
    "heads": 2,
    "length": 264,
    "base_steps": 2,
    "base_warmup": 1,
    "steps": 2,
    "warmup": 1,
    "texts": 1,
    "passkeys": 1,
    "test_tokens": 600,
    "passkey_lengths": [264, 528],
    "depths": [0, 1],
    "trials": 1,
}


@pytest.fixture
def tiny(tmp_path):
    """The study in no time, on a corpus of its own."""
    for split in ("train", "validation", "test"):
        words = f"This is the text to {split}, said again and again. " * 40
        (tmp_path / "corpus").mkdir(exist_ok=True)
        (tmp_path / "corpus" / f"{split}.txt").write_text(words)
    return STUDY.with_settings({**TINY, "corpus": str(tmp_path / "corpus")})


def run_alone(cell, directory, stop=lambda: False):
    cell.run(directory, report=lambda _: None, stop=stop, device="cpu")
    path = work.result_file(cell, directory)
    return json.loads(path.read_text()) if path.exists() else None


def cell_of(study, row, seed=0):
    return ExtensionCell(study.row(row), study.settings("mini"), seed)


# Typed from the paper a second time.
PRINTED = """
LoRA     3.828 3.369 3.064 2.867 9.791 9.098 8.572 8.199
LongLoRA 3.918 3.455 3.153 2.956 9.989 9.376 8.948 8.645
Theta    3.864 3.415 3.121 2.934 9.257 8.640 8.241 7.999
TAPE     3.641 3.196 2.901 2.708 8.226 7.642 7.278 7.063
"""


def test_the_papers_numbers():
    rows = {words[0].lower(): words[1:] for words in map(str.split, PRINTED.split("\n")) if words}
    for place, figures in enumerate(STUDY.figures):
        assert isinstance(figures, Figures)
        columns = slice(4 * place, 4 * place + 4)
        assert figures.rows == {
            name: tuple(map(float, values[columns])) for name, values in rows.items()
        }


def test_the_claims_about_perplexity_are_what_the_papers_table_says():
    for claim in STUDY.claims:
        if claim.measure == "perplexity":
            for figures in STUDY.figures:
                for worse in claim.worse:
                    pairs = zip(figures.rows[claim.better], figures.rows[worse], strict=True)
                    assert all(low < high for low, high in pairs)


def test_every_row_trains_what_it_says(tiny, tmp_path):
    expected = {
        "lora": {"lora", "embeddings", "norms"},
        "longlora": {"lora", "embeddings", "norms"},
        "theta": {"lora", "embeddings", "norms"},
        "yarn": {"lora", "embeddings", "norms"},
        "tape": {"encoding", "embeddings", "norms"},
        "cope": {"encoding", "embeddings", "norms"},
        "tape+lora": {"encoding", "lora", "embeddings", "norms"},
        "cope+lora": {"encoding", "lora", "embeddings", "norms"},
    }
    assert tuple(expected) == STUDY.encodings[1:]
    settings = tiny.settings("mini")
    for name, kinds in expected.items():
        base = models.fresh_base(settings, 0)
        weights = {name: p.detach().clone() for name, p in base.named_parameters()}
        model = models.extended(base, STUDY.row(name), settings, 0)
        trained = models.trained_in(model)["parameters"]
        assert set(trained) == kinds, name
        assert trained["embeddings"] == 256 * 16
        assert trained["norms"] == 5 * 16  # two in each layer, and the last
        if "lora" in trained:
            assert trained["lora"] == 2 * 4 * 8 * (16 + 16)
        host = model.get_base_model().config.host_config if "lora" in kinds else model.config
        assert host.max_position_embeddings == 528
        assert sum(p.numel() for p in weights.values()) <= models.trained_in(model)["model"]


def test_rows_start_as_the_rope_they_say(tiny):
    """TAPE and CoPE add nothing at the start, nor does LoRA: all are the base at half the speed."""
    from transformers import LlamaForCausalLM

    settings = tiny.settings("mini")
    tokens = torch.randint(256, (1, 300))

    def base():
        model = models.fresh_base(settings, 0)
        for name, parameter in model.named_parameters():
            if "q_proj" in name or "k_proj" in name:
                parameter.data *= 30  # attention that knows positions from each other
        return model

    def said(model):
        with torch.inference_mode():
            return model.eval()(input_ids=tokens).logits

    def stock(**rope):
        model = base()
        model.config.rope_parameters = {**model.config.rope_parameters, **rope}
        turned = LlamaForCausalLM(model.config)
        turned.load_state_dict(model.state_dict())
        return said(turned)

    rows = {
        name: said(models.extended(base(), STUDY.row(name), settings, 0))
        for name in STUDY.encodings[1:]
    }
    kept = stock()
    interpolated = stock(rope_type="linear", factor=2.0)
    raised = stock(rope_type="linear", factor=2.0, rope_theta=1e6)
    for name in ("lora", "longlora", "tape", "cope", "tape+lora", "cope+lora"):
        torch.testing.assert_close(rows[name], interpolated, rtol=0, atol=1e-5)
    torch.testing.assert_close(rows["theta"], raised, rtol=0, atol=1e-5)
    different = (kept, interpolated, raised, rows["yarn"])
    for place, one in enumerate(different):
        for other in different[:place]:
            assert (one - other).abs().max() > 1e-2


def test_only_what_is_trained_moves_and_a_stopped_cell_goes_on_as_if_it_had_not_been(
    tiny, tmp_path
):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    tape = cell_of(tiny, "tape")
    for directory in (whole, parts):
        base = run_alone(cell_of(tiny, BASE), directory)
        assert base["trained"]["parameters"].keys() == {"embeddings", "norms", "host"}
    expected = run_alone(tape, whole)
    asked = []

    def stop_after_one_step():
        asked.append(None)
        return True

    assert run_alone(tape, parts, stop_after_one_step) is None
    checkpoint = work.run_folder(tape, parts) / "checkpoint.pt"
    kept = torch.load(checkpoint, weights_only=True)
    assert kept["step"] == 1
    assert all(".encoding." in n or "embed_tokens" in n or "norm" in n for n in kept["parameters"])
    resumed = run_alone(tape, parts)
    for part in ("perplexity", "passkey", "history", "trained", "base"):
        assert resumed[part] == expected[part]
    assert set(expected["perplexity"]) == {"66", "132", "264", "528"}
    assert expected["passkey"].keys() == {"264", "528"}
    assert expected["passkey"]["528"].keys() == {"0.0", "1.0"}
    assert expected["base"] == base["base"]


def test_a_damaged_checkpoint_is_given_up(tiny, tmp_path, capsys):
    base = cell_of(tiny, BASE)
    run_alone(base, tmp_path, stop=lambda: True)
    (work.run_folder(base, tmp_path) / "checkpoint.pt").write_bytes(b"nothing")
    assert run_alone(base, tmp_path) is not None
    assert "starting over" in capsys.readouterr().out


def test_batches_are_a_function_of_seed_and_step_and_hold_no_key_that_is_asked_for(tiny, tmp_path):
    settings = replace(tiny.settings("mini"), passkeys=4, trials=3)
    one, other = (Data(settings, tmp_path) for _ in range(2))
    other.batch(0, "extend", 0, 264)
    for found, again in zip(
        one.batch(0, "extend", 5, 264), other.batch(0, "extend", 5, 264), strict=True
    ):
        assert torch.equal(found, again)
    windows, prompts = one.batch(0, "extend", 5, 264)
    assert windows.shape == (1, 265)
    assert prompts.shape == (4, 265)
    assert not torch.equal(windows, one.batch(1, "extend", 5, 264)[0])
    assert bytes(prompts[0].tolist()).startswith(passkey.DESCRIPTION.encode())
    asked = {int(trial.key) for trial in one.trials}
    assert len(one.keys) == passkey.KEYS - len(asked)
    assert not asked & set(one.keys.tolist())
    said = [bytes(prompt.tolist()).decode().rstrip() for prompt in prompts]
    assert all(int(prompt[-5:]) in one.keys for prompt in said)
    assert all(f" {prompt[-5:]}. Remember it." in prompt for prompt in said)
    assert len({len(prompt) for prompt in said}) > 1
    assert all(passkey.FRAME <= len(prompt) <= 265 for prompt in said)


def test_the_digits_that_can_be_known_have_a_loss_of_their_own():
    class Model:
        """Is sure that every byte is a 7."""

        def __call__(self, input_ids, use_cache):
            logits = torch.zeros(*input_ids.shape, 256)
            logits[:, :, ord("7")] = 100.0
            return type("Output", (), {"logits": logits})

    prompt = torch.tensor([list(f"{passkey.prompt('77777', 0, 0)} 77777".encode())])
    text = torch.full_like(prompt, ord("x"))
    loss, parts = running.loss_of(Model(), text, prompt)
    assert parts["passkey"] == pytest.approx(0.0, abs=1e-4)
    text, whole = (100 * (1 - share) for share in (0, 15 / (prompt.shape[1] - 1)))
    assert parts["text"] == pytest.approx(text, abs=1e-3)
    assert loss.item() == pytest.approx(text + whole, abs=1e-3)


def test_cached_decoding_is_that_without_a_cache(tiny):
    settings = tiny.settings("mini")
    model = models.extended(models.fresh_base(settings, 0), STUDY.row("cope+lora"), settings, 0)
    tokens = torch.randint(256, (1, 40))
    plain = passkey.greedy(lambda rows: model(input_ids=rows, use_cache=False).logits)
    assert torch.equal(running.cached_greedy(model.eval())(tokens, 6), plain(tokens, 6))


def test_the_schedule():
    constant = Schedule(100, 0.1, 10, 0.0, 8, "extend", decays=False)
    assert constant.rate(0) == pytest.approx(0.01)
    assert constant.rate(9) == constant.rate(99) == 0.1
    falling = replace(constant, decays=True)
    assert falling.rate(50) == 0.1
    assert falling.rate(99) == pytest.approx(0.003)


def test_the_hash_depends_on_the_row_the_seed_and_every_setting(tiny):
    settings = tiny.settings("mini")
    changes = {
        name: value + 1 if isinstance(value, int | float) else f"{value}1"
        for name, value in settings.to_dict().items()
        if not isinstance(value, list)
    }
    changes |= {"passkey_lengths": (270,), "depths": (0.5,)}
    assert set(changes) == set(settings.to_dict())
    cell = cell_of(tiny, "tape")
    hashes = {replace(cell, settings=replace(settings, **{n: v})).hash for n, v in changes.items()}
    hashes |= {cell_of(tiny, name).hash for name in tiny.encodings}
    hashes.add(replace(cell, seed=1).hash)
    assert len(hashes) == len(changes) + len(tiny.encodings) + 1


def test_a_study_trains_a_base_once_and_shows_what_there_is(tiny, tmp_path):
    directory = tmp_path / "study"
    news = []
    progress = run(
        tiny,
        directory,
        scale="mini",
        encodings=["lora", "cope"],
        seeds=1,
        executor=Local(jobs=2),
        watch=lambda _, line: line and news.append(line),
    )
    assert not progress.failed, news
    assert progress.finished == 3
    assert news[0].startswith("base, seed 0: finished")
    found = report.load(directory)
    assert found.rows == ("base", "lora", "cope")
    assert report.bases(found) == []
    base = cell_of(tiny, "cope").base_folder(directory)
    trained = (base / "model.safetensors").stat().st_mtime_ns
    again = run(tiny, directory, scale="mini", encodings=["theta"], seeds=1, executor=Local(jobs=1))
    assert (again.finished, again.skipped) == (1, 1)
    assert (base / "model.safetensors").stat().st_mtime_ns == trained
    assert report.load(directory).rows == ("base", "lora", "theta", "cope")


def test_a_base_that_is_gone_is_trained_again(tiny, tmp_path):
    directory = tmp_path / "study"
    base = cell_of(tiny, BASE)
    first = run_alone(base, directory)
    shutil.rmtree(directory / "bases")
    progress = run(
        tiny, directory, scale="mini", encodings=["lora"], seeds=1, executor=Local(jobs=1)
    )
    assert (progress.finished, progress.skipped) == (2, 0)
    again = json.loads(work.result_file(base, directory).read_text())
    assert (again["base"], again["perplexity"]) == (first["base"], first["perplexity"])


def test_a_base_that_fails_takes_its_rows_with_it(tiny, tmp_path):
    broken = tiny.with_settings({"length": 100})  # too short for a passkey
    news = []
    progress = run(
        broken,
        tmp_path / "study",
        scale="mini",
        encodings=["tape"],
        seeds=1,
        executor=Local(jobs=1),
        watch=lambda _, line: line and news.append(line),
    )
    assert [cell.label for cell in progress.failed] == ["base, seed 0", "tape, seed 0"]
    assert "setting 'passkeys' must be 0" in news[0]
    assert news[1] == "tape, seed 0: failed, it needs base, seed 0, which failed"


def test_a_setting_that_may_be_none_can_be_given_so():
    given = {"checkpoint": None, "test_corpus": None}
    (cell, *_) = STUDY.with_settings(given).cells("mini", ["tape"], 1)
    assert cell == STUDY.cells("mini", ["tape"], 1)[0]


@pytest.mark.parametrize(
    ("scale", "settings", "message"),
    [
        ("paper", {}, "give one by --settings checkpoint=PATH corpus=PATH"),
        ("paper", {"checkpoint": "x"}, "give it by --settings corpus=PATH"),
        ("mini", {"stps": 3}, "unknown setting 'stps': did you mean 'steps'"),
        ("mini", {"steps": 0}, "setting 'steps' must be a whole number above 0, got 0"),
        ("mini", {"lr": -1}, "setting 'lr' must be a number above 0, got -1"),
        ("mini", {"depths": 3}, "setting 'depths' must be a list of numbers"),
        ("mini", {"precision": "fp8"}, "setting 'precision' must be fp32 or bf16"),
        ("mini", {"length": None}, "setting 'length' must be a whole number where the base"),
        ("mini", {"steps": None}, "setting 'steps' must be a whole number above 0, got None"),
        ("mni", {}, "unknown scale 'mni'"),
    ],
)
def test_mistakes_are_named(scale, settings, message):
    with pytest.raises(UsageError, match=message):
        STUDY.with_settings(settings).cells(scale, ["tape"], 1)


def test_an_unknown_row_is_named_with_the_nearest():
    with pytest.raises(UsageError, match="unknown row 'tap': did you mean 'tape'"):
        STUDY.cells("mini", ["tap"], 1)


@pytest.fixture
def checkpoint(tmp_path):
    """A Llama of random weights with a tokenizer of its own, as a folder."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: i for i, letter in enumerate(["</s>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    from tokenizers import decoders

    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=264,
    )
    folder = tmp_path / "llama"
    LlamaForCausalLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def test_the_papers_scale_takes_weights_and_text_from_paths(tiny, tmp_path, checkpoint):
    settings = {
        "checkpoint": str(checkpoint),
        "corpus": tiny.overrides["corpus"],
        "steps": 2,
        "accumulate": 2,
        "test_tokens": 600,
        "passkey_lengths": [300, 528],
        "depths": [0.5],
        "trials": 1,
    }
    study = STUDY.with_settings(settings)
    assert study.settings("paper").lr == 2e-5
    results = {}
    for name in (BASE, "theta", "tape"):
        cell = ExtensionCell(study.row(name), study.settings("paper"), 0)
        results[name] = run_alone(cell, tmp_path / "study")
        assert results[name]["length"] == 264
        assert set(results[name]["perplexity"]) == {"66", "132", "264", "528"}
    assert results[BASE]["trained"]["parameters"] == {}
    assert set(results["tape"]["trained"]["parameters"]) == {"encoding", "embeddings", "norms"}
    data = Data(study.settings("paper"), tmp_path / "study")
    assert data.train[-1] == 0  # the end-of-text token after a document
    assert len(list((tmp_path / "study" / "tokens").iterdir())) == 2
    (tmp_path / "corpus" / "train.txt").write_text("The text has changed since. " * 60)
    changed = Data(study.settings("paper"), tmp_path / "study")
    assert len(changed.train) != len(data.train)


def test_a_checkpoint_that_is_none_is_named(tiny, tmp_path):
    settings = {"checkpoint": str(tmp_path), "corpus": tiny.overrides["corpus"]}
    study = STUDY.with_settings(settings)
    cell = ExtensionCell(study.row("tape"), study.settings("paper"), 0)
    with pytest.raises(UsageError, match=r"with config\.json, got"):
        run_alone(cell, tmp_path)


def test_keys_are_found_by_a_model_that_finds_them(tiny, tmp_path):
    """The measurement's own test: a model that reads the key off the prompt scores all."""
    settings = tiny.settings("mini")
    cell = cell_of(tiny, "tape")
    asked = running.Run(cell, tmp_path, torch.device("cpu"), lambda _: None, lambda: False)

    class Reader(torch.nn.Module):
        def forward(self, input_ids, use_cache, past_key_values=None):
            text = list(past_key_values or []) + input_ids[0].tolist()
            logits = torch.zeros(*input_ids.shape, 256)
            said = bytes(text).decode()
            if passkey.QUESTION in said:
                key = said.split("Remember it. ")[1][:5]
                answer = f" {key}".encode()
                so_far = len(said.split(passkey.QUESTION)[1])
                if so_far < len(answer):
                    logits[0, -1, answer[so_far]] = 1.0
            return type("Output", (), {"logits": logits, "past_key_values": text})

    found = asked.measure(Reader().eval(), 264)
    assert found["passkey"] == {
        str(length): {"0.0": [1, 1], "1.0": [1, 1]} for length in settings.passkey_lengths
    }
    assert found["perplexity"]["264"]["nats"] == pytest.approx(np.log(256))
