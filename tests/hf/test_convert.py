"""Runs as Hugging Face folders and back: the same logits, the same settings, and nothing lost."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from milepost import cli, encoding, tasks
from milepost.errors import UsageError
from milepost.evaluate import evaluate_run, load_run
from milepost.generate import generate
from milepost.hf import MilepostForCausalLM, convert
from milepost.training import checkpoint, rundir
from milepost.training.checkpoint import Counters
from milepost.training.loop import build_model, train
from milepost.training.settings import Settings

SMALL = {"dim": 16, "layers": 2, "heads": 2}
PRO = {"qk_norm": True, "kv_shift": True, "output_norm": True, "output_gate": True}
BLOCKS = {
    "llama": {"norm": "rms", "mlp": "swiglu", "bias": False, "tied": False, "key_heads": 1},
    "fox-pro": {**PRO, "norm": "rms", "mlp": "swiglu", "mlp_dim": 24, "bias": False},
    "post-norm": {"norm_place": "post", "mlp": "relu", "init_std": 0.02, "dropout": 0.1},
    "post-norm-untied": {"norm_place": "post", "tied": False},
    "window": {"window": 5, "head_dim": 4, "mlp": "geglu"},
}


def settings_of(name="cope", task="flip-flop", **model):
    given = {} if task != "flip-flop" else {"length": 16}
    return Settings(
        task=task,
        task_settings=given or {"length": 32},
        encoding=name,
        model={"max_length": 32, **SMALL, **model},
        steps=7,
        batch=2,
        lr=0.01,
    )


def write_run(folder, settings):
    """A run that was trained for no step, with weights that are not at a symmetric start."""
    task = tasks.build(settings.task, **settings.task_settings)
    model = build_model(settings, task)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    optimizer = torch.optim.AdamW(model.parameters())
    counters = Counters(step=3, tokens=90, seconds=1.5, loss=0.25, skipped=1)
    place = folder / rundir.CHECKPOINT
    checkpoint.save(place, settings, model, optimizer, counters, torch.device("cpu"))
    (folder / rundir.CONFIG).write_text(json.dumps(settings.to_dict()))
    return folder


def check_both_ways(tmp_path, settings):
    run = write_run(tmp_path / "run", settings)
    convert.to_huggingface(run, tmp_path / "hf")
    convert.to_run(tmp_path / "hf", tmp_path / "back")

    decoder, _, task = load_run(run, "cpu")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    again, settings_again, _ = load_run(tmp_path / "back", "cpu")
    assert isinstance(model, MilepostForCausalLM)
    assert not model.training
    tokens = task.batch(0, "test", 0, 2).tokens[:, :12]
    with torch.no_grad():
        # the encoding "randomized" draws its positions
        logits = [seeded(call, tokens) for call in (decoder, as_logits(model), again)]
    assert torch.equal(logits[0], logits[1])
    assert torch.equal(logits[0], logits[2])

    assert settings_again == settings
    assert rundir.read_settings(tmp_path / "back") == settings
    before, after = (checkpoint.load(tmp_path / at / "checkpoint.pt") for at in ("run", "back"))
    assert list(before["model"]) == list(after["model"])
    for name, value in before["model"].items():
        assert torch.equal(after["model"][name], value), name
    assert before["counters"] == after["counters"]


def seeded(call, tokens):
    torch.manual_seed(0)
    return call(tokens)


def as_logits(model):
    return lambda tokens: model(tokens).logits


@pytest.mark.parametrize("name", encoding.names())
def test_every_encoding_both_ways(name, tmp_path):
    check_both_ways(tmp_path, settings_of(name))


@pytest.mark.parametrize("name", ["fox", "cope", "tape"])
@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_both_ways(block, name, tmp_path):
    check_both_ways(tmp_path, settings_of(name, **BLOCKS[block]))


def test_options_of_encodings_both_ways(tmp_path):
    settings = settings_of("cope")
    values = {**settings.to_dict(), "encoding_options": {"p_max": 5, "shared": True}}
    check_both_ways(tmp_path, Settings.from_dict(values))


def test_a_run_on_bytes_both_ways(tmp_path):
    check_both_ways(tmp_path, settings_of("rope", task="text"))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert tokenizer.encode(" é") == [0x20, 0xC3, 0xA9]


def test_a_trained_run_scores_the_same(tmp_path):
    train(settings_of("cope"), tmp_path / "run", device="cpu")
    convert.to_huggingface(tmp_path / "run", tmp_path / "hf")
    convert.to_run(tmp_path / "hf", tmp_path / "back")
    before, after = (
        evaluate_run(tmp_path / at, ["in", "length x2"], sequences=8, device="cpu")
        for at in ("run", "back")
    )
    assert before == after


def test_the_run_is_left_as_it_was(tmp_path):
    run = write_run(tmp_path / "run", settings_of())
    files = {path.name: path.read_bytes() for path in run.iterdir()}
    convert.to_huggingface(run, tmp_path / "hf")
    assert {path.name: path.read_bytes() for path in run.iterdir()} == files


@pytest.fixture
def hf(tmp_path):
    """A Hugging Face folder that came from a run."""
    run = write_run(tmp_path / "run", settings_of(tied=False))
    convert.to_huggingface(run, tmp_path / "hf")
    return tmp_path / "hf"


def test_what_is_in_the_folder(hf):
    assert {path.name for path in hf.iterdir()} == {
        "config.json",
        "generation_config.json",
        "milepost_run.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    generation = json.loads((hf / "generation_config.json").read_text())
    assert "eos_token_id" not in generation
    assert hf.stat().st_mode == (hf.parent / "run").stat().st_mode
    assert {path.stat().st_mode for path in hf.iterdir()} == {(hf / "config.json").stat().st_mode}
    config = hf.parent / "run" / rundir.CONFIG
    assert (hf / "model.safetensors").stat().st_mode == config.stat().st_mode
    assert [path.name for path in hf.parent.iterdir() if path.name.startswith(".")] == []


def test_weights_that_were_trained_on_go_back_too(hf, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(hf)
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    model.save_pretrained(hf)
    convert.to_run(hf, tmp_path / "back")
    decoder, _, _ = load_run(tmp_path / "back", "cpu")
    assert torch.equal(decoder.unembedding.weight, model.lm_head.weight)


def test_weights_in_bf16_go_back_as_they_are(hf, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(hf).bfloat16()
    model.save_pretrained(hf)
    convert.to_run(hf, tmp_path / "back")
    decoder, _, _ = load_run(tmp_path / "back", "cpu")
    assert decoder.embedding.weight.dtype == torch.float32
    assert torch.equal(decoder.embedding.weight, model.model.embedding.weight.float())


def test_weights_in_fp64_would_be_rounded(hf, tmp_path):
    AutoModelForCausalLM.from_pretrained(hf).double().save_pretrained(hf)
    with pytest.raises(UsageError, match=r"fp32, got torch.float64.*model\.float\(\)"):
        convert.to_run(hf, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_a_run_that_came_back_is_not_resumed(hf, tmp_path):
    convert.to_run(hf, tmp_path / "back")
    files = {path.name: path.read_bytes() for path in (tmp_path / "back").iterdir()}
    with pytest.raises(UsageError, match="keeps no optimizer state"):
        train(settings_of(tied=False), tmp_path / "back", resume=True, device="cpu")
    for name, content in files.items():
        assert (tmp_path / "back" / name).read_bytes() == content


@pytest.mark.parametrize("way", ["there", "back"])
@pytest.mark.parametrize("taken", ["folder", "file", "dangling link"])
def test_nothing_is_overwritten(way, taken, hf, tmp_path):
    out = tmp_path / "out"
    if taken == "folder":
        out.mkdir()
    elif taken == "file":
        out.write_text("mine")
    else:
        out.symlink_to(tmp_path / "nowhere")
    call, source = {
        "there": (convert.to_huggingface, tmp_path / "run"),
        "back": (convert.to_run, hf),
    }[way]
    with pytest.raises(UsageError, match="exists already, and is left as it is: choose another"):
        call(source, out)
    assert taken != "folder" or list(out.iterdir()) == []


def test_a_failure_leaves_nothing_behind(hf, tmp_path, monkeypatch):
    def fail(path, value):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(convert, "write_json", fail)
    before = sorted(path.name for path in tmp_path.iterdir())
    for call, source in ((convert.to_huggingface, tmp_path / "run"), (convert.to_run, hf)):
        with pytest.raises(UsageError, match=r"cannot write .*out: No space left on device"):
            call(source, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_folder_that_lost_its_run(hf, tmp_path):
    (hf / "milepost_run.json").unlink()
    with pytest.raises(UsageError, match=r"milepost_run\.json is missing.*copy it from"):
        convert.to_run(hf, tmp_path / "back")


def test_a_folder_of_another_model_than_its_run(hf, tmp_path):
    about = json.loads((hf / "milepost_run.json").read_text())
    about["settings"]["encoding"] = "rope"
    about["settings"]["model"]["window"] = 4
    (hf / "milepost_run.json").write_text(json.dumps(about))
    with pytest.raises(UsageError, match=r"window 4 ≠ None; encoding 'rope' ≠ 'cope'"):
        convert.to_run(hf, tmp_path / "back")


def test_a_folder_of_another_format(hf, tmp_path):
    about = json.loads((hf / "milepost_run.json").read_text())
    (hf / "milepost_run.json").write_text(json.dumps({**about, "format": "milepost run 9"}))
    with pytest.raises(UsageError, match="got 'milepost run 9': use the version"):
        convert.to_run(hf, tmp_path / "back")


def test_damaged_weights(hf, tmp_path):
    content = (hf / "model.safetensors").read_bytes()
    (hf / "model.safetensors").write_bytes(content[:100])
    with pytest.raises(UsageError, match="cannot be loaded by transformers"):
        convert.to_run(hf, tmp_path / "back")


def test_what_a_folder_is(hf, tmp_path):
    assert convert.kind(tmp_path / "run") == "run"
    assert convert.kind(hf) == "huggingface"
    (tmp_path / "run" / "checkpoint.pt").unlink()
    for other in (tmp_path, tmp_path / "nowhere", tmp_path / "run"):
        with pytest.raises(UsageError, match="it is neither: check the path"):
            convert.kind(other)


def test_the_command_finds_the_direction(hf, tmp_path, capsys):
    shutil.rmtree(hf)
    run, back = tmp_path / "run", tmp_path / "back"
    assert cli.main(["convert", str(run), "--out", str(hf)]) == 0
    assert f"milepost generate {hf}" in capsys.readouterr().out
    assert cli.main(["convert", str(hf), "--out", str(back)]) == 0
    assert f"milepost evaluate {back}" in capsys.readouterr().out
    assert cli.main(["evaluate", str(back), "--test-set", "in", "--sequences", "4"]) == 0
    assert cli.main(["convert", str(hf), "--out", str(back)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_the_generators_are_left_alone(hf, tmp_path):
    state = torch.get_rng_state()
    convert.to_run(hf, tmp_path / "back")
    convert.to_huggingface(tmp_path / "back", tmp_path / "again")
    assert torch.equal(torch.get_rng_state(), state)


def test_a_fresh_process_needs_one_import(hf, tmp_path):
    """What AutoModel and AutoTokenizer make of the folder continues a text as our own decoder."""
    code = (
        "import sys, milepost.hf\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        "model = AutoModelForCausalLM.from_pretrained(sys.argv[1])\n"
        "tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])\n"
        "prompt = tokenizer('w 1 i 0 r', return_tensors='pt')\n"
        "out = model.generate(**prompt, max_new_tokens=9)\n"
        "print(tokenizer.decode(out[0]))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(hf)], capture_output=True, text=True, check=True
    )
    decoder, _, task = load_run(tmp_path / "run", "cpu")
    prompt = torch.tensor([[task.vocab.index(word) for word in ("w", "1", "i", "0", "r")]])
    expected = torch.cat((prompt, generate(decoder, prompt, 9)), dim=1)
    assert ended.stdout.strip() == task.render(expected[0])
