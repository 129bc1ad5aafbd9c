"""`milepost generate`: the model's own continuation, whatever folder and text it is given."""

import io
import sys

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from milepost import cli, tasks
from milepost.commands.generate import Printer
from milepost.evaluate import load_run
from milepost.generate import generate
from milepost.hf import convert
from milepost.hf.tokenizer import of_task
from milepost.tasks.text import Text
from milepost.training import checkpoint, rundir
from milepost.training.checkpoint import Counters
from milepost.training.loop import build_model
from milepost.training.settings import Settings

PROMPT = "w 1 i 0 r"


def write_run(folder, task="flip-flop", encoding="cope", **task_settings):
    settings = Settings(
        task=task,
        task_settings=task_settings or {"length": 32},
        encoding=encoding,
        model={"dim": 16, "layers": 2, "heads": 2, "max_length": 64},
        steps=1,
        batch=2,
        lr=0.01,
    )
    model = build_model(settings, tasks.build(task, **settings.task_settings))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    optimizer = torch.optim.AdamW(model.parameters())
    place = folder / rundir.CHECKPOINT
    checkpoint.save(place, settings, model, optimizer, Counters(), torch.device("cpu"))
    return folder


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


def written(capsys, *arguments):
    """What the command prints, and what it says of the speed."""
    assert cli.main(["generate", *map(str, arguments), "--device", "cpu"]) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err


def refused(capsys, *arguments):
    assert cli.main(["generate", *map(str, arguments), "--device", "cpu"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def greedy(run, count):
    decoder, _, task = load_run(run, "cpu")
    prompt = torch.tensor([[task.vocab.index(word) for word in PROMPT.split()]])
    return task.render(generate(decoder, prompt, count)[0])


def test_a_run_continues_as_our_own_decoder(run, capsys):
    out, err = written(capsys, run, "--prompt", PROMPT, "--max-new-tokens", 12)
    assert out == greedy(run, 12) + "\n"
    assert err.startswith("12 tokens in ")
    assert "after 5 of the text" in err
    assert "tokens per second" in err


def test_a_hugging_face_folder_continues_as_the_run(run, tmp_path, capsys):
    convert.to_huggingface(run, tmp_path / "hf")
    options = ("--prompt", PROMPT, "--max-new-tokens", 12)
    assert written(capsys, tmp_path / "hf", *options)[0] == written(capsys, run, *options)[0]


@pytest.mark.parametrize("source", ["prompt", "file", "stdin", "file -"])
def test_where_the_text_comes_from(source, run, tmp_path, capsys, monkeypatch):
    (tmp_path / "text").write_text(f"{PROMPT}\n")
    given = {
        "prompt": ["--prompt", PROMPT],
        "file": ["--file", tmp_path / "text"],
        "stdin": ["-"],
        "file -": ["--file", "-"],
    }
    standard = io.TextIOWrapper(io.BytesIO((tmp_path / "text").read_bytes()))
    monkeypatch.setattr(sys, "stdin", standard)
    out, _ = written(capsys, run, *given[source], "--max-new-tokens", 3)
    assert out == greedy(run, 3) + "\n"


def test_what_is_drawn_follows_from_the_seed(run, capsys):
    options = (run, "--prompt", PROMPT, "--max-new-tokens", 40, "--temperature", 2)
    first, again, other = (written(capsys, *options, "--seed", seed)[0] for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first != greedy(run, 40) + "\n"


@pytest.mark.parametrize("option", [("--top-k", 1), ("--top-p", 1e-6)])
def test_the_likeliest_alone(option, run, capsys):
    options = (run, "--prompt", PROMPT, "--max-new-tokens", 12, "--temperature", 3)
    assert written(capsys, *options, *option)[0] == greedy(run, 12) + "\n"


def test_beams_print_at_the_end(run, capsys):
    options = (run, "--prompt", PROMPT, "--max-new-tokens", 8)
    out, _ = written(capsys, *options, "--beams", 3)
    assert set(out.split()) <= {"w", "i", "r", "0", "1"}
    assert len(out.split()) == 8
    assert likelihood(run, out) >= likelihood(run, written(capsys, *options)[0])


def likelihood(run, continuation):
    decoder, _, task = load_run(run, "cpu")
    ids = torch.tensor([[task.vocab.index(word) for word in f"{PROMPT} {continuation}".split()]])
    chances = decoder(ids)[0].log_softmax(-1)[4:-1]
    return chances.gather(1, ids[0, 5:, None]).sum().item()


def test_the_text_appears_as_it_is_made(run, monkeypatch):
    """Each token is on standard output before the model is called for the next."""
    model, tokenizer = convert.load(run, device="cpu")
    out, seen = io.StringIO(), []
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(convert, "load", lambda *_, **__: (model, tokenizer))
    model.register_forward_pre_hook(lambda *_: seen.append(len(out.getvalue().split())))
    assert cli.main(["generate", str(run), "--prompt", PROMPT, "--max-new-tokens", "6"]) == 0
    assert seen == [0, 1, 2, 3, 4, 5]


def test_a_character_appears_when_its_bytes_are_whole(capsys):
    printer = Printer(of_task(Text()))
    printer.put(torch.tensor([[65]]))
    shown = []
    for byte in "né→z".encode() + b"\xff":
        printer.put(torch.tensor([byte]))
        shown.append(capsys.readouterr().out)
    printer.end()
    assert shown == ["n", "", "é", "", "", "→", "z", ""]
    assert capsys.readouterr().out == "\ufffd\n"


def test_what_was_written_before_an_error_is_printed(tmp_path, capsys):
    run = write_run(tmp_path / "run", "flip-flop", "absolute", length=8)
    status = cli.main(["generate", str(run), "--prompt", PROMPT, "--max-new-tokens", "999"])
    printed = capsys.readouterr()
    assert status == 2
    assert "absolute positions were built for" in printed.err
    assert len(printed.out.split()) > 2


def test_bytes(tmp_path, capsys):
    run = write_run(tmp_path / "run", "text", "fox", length=32)
    out, err = written(capsys, run, "--prompt", "né ", "--max-new-tokens", 10)
    decoder, _, _ = load_run(run, "cpu")
    new = generate(decoder, torch.tensor([list("né ".encode())]), 10)[0].tolist()
    assert out == bytes(new).decode(errors="replace") + "\n"
    assert "after 4 of the text" in err


@pytest.mark.parametrize("name", ["milepost_reference", "eager"])
def test_the_kernels_can_be_chosen(name, run, tmp_path, capsys):
    convert.to_huggingface(run, tmp_path / "hf")
    for folder in (run, tmp_path / "hf"):
        options = (folder, "--prompt", PROMPT, "--max-new-tokens", 4)
        out, _ = written(capsys, *options, "--attn-implementation", name)
        assert out == greedy(run, 4) + "\n"


def test_other_kernels_would_leave_the_encoding_out(run, tmp_path, capsys):
    convert.to_huggingface(run, tmp_path / "hf")
    for folder in (run, tmp_path / "hf"):
        options = (folder, "--prompt", PROMPT, "--attn-implementation", "sdpa")
        assert "leave the encoding 'cope' out" in refused(capsys, *options)


@pytest.fixture
def stock(tmp_path):
    """A folder that is none of ours, with an end of text and settings of its own."""
    config = GPT2Config(
        vocab_size=5, n_embd=16, n_layer=1, n_head=2, n_positions=64, eos_token_id=4, bos_token_id=4
    )
    model = GPT2LMHeadModel(config)
    model.generation_config.update(do_sample=True, temperature=0.7, top_k=3, max_length=7)
    model.save_pretrained(tmp_path / "stock")
    tokenizer = of_task(tasks.build("flip-flop"))
    tokenizer.eos_token = "1"
    tokenizer.save_pretrained(tmp_path / "stock")
    return tmp_path / "stock"


def test_a_stock_model(stock, capsys):
    options = (stock, "--prompt", "w i", "--max-new-tokens", 20)
    assert written(capsys, *options)[0] == written(capsys, *options, "--seed", 1)[0]
    assert written(capsys, *options, "--attn-implementation", "sdpa")[0]


def test_a_stock_model_ends_where_it_says_so(stock, capsys):
    model, _ = convert.load(stock, device="cpu")
    with torch.no_grad():
        model.transformer.wte.weight[4] = 100 * model.transformer.ln_f.weight
        model.transformer.ln_f.bias.fill_(1)
    model.save_pretrained(stock)
    out, err = written(capsys, stock, "--prompt", "w i", "--max-new-tokens", 20)
    assert out == "\n"
    assert err.startswith("1 token in ")


def test_a_word_that_the_model_does_not_know(run, capsys):
    err = refused(capsys, run, "--prompt", "w 1 i 0 rr")
    assert err == "error: unknown word 'rr': did you mean 'r'? valid: 0, 1, i, r, w\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "got 0 of them: give one"),
        (["--prompt", "w", "-"], "got 2 of them: give one"),
        (["--prompt", ""], "at least one token, got none"),
        (["--file", "nowhere"], "cannot read nowhere"),
        (["--prompt", "w", "--max-new-tokens", "0"], "--max-new-tokens must be a whole number"),
        (["--prompt", "w", "--temperature", "-1"], "--temperature must be a finite number"),
        (["--prompt", "w", "--temperature", "nan"], "--temperature must be a finite number"),
        (["--prompt", "w", "--top-k", "2"], "given with a --temperature above 0, got 2"),
        (["--prompt", "w", "--top-p", "0", "--temperature", "1"], "above 0 and at most 1, got 0"),
        (["--prompt", "w", "--beams", "0"], "--beams must be a whole number of at least 1"),
    ],
)
def test_mistakes(options, message, run, capsys):
    assert message in refused(capsys, run, *options)


def test_a_file_that_is_no_text(run, tmp_path, capsys):
    (tmp_path / "text").write_bytes(b"ab\xff")
    assert "UTF-8, got bytes that are not, at 2" in refused(
        capsys, run, "--file", tmp_path / "text"
    )


def test_folders_without_a_model_or_tokenizer(stock, tmp_path, capsys):
    assert "it is neither" in refused(capsys, tmp_path, "--prompt", "w")
    for path in stock.glob("tokenizer*"):
        path.unlink()
    assert "has no tokenizer: save that" in refused(capsys, stock, "--prompt", "w")


def test_past_the_end_of_a_table(tmp_path, capsys):
    run = write_run(tmp_path / "run", encoding="absolute")
    options = ("generate", run, "--prompt", PROMPT, "--max-new-tokens", 80, "--device", "cpu")
    assert cli.main([*map(str, options)]) == 2
    assert "max_length" in capsys.readouterr().err
