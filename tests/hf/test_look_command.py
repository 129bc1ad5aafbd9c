"""`milepost look` at Hugging Face folders: as the run that one was, or with any text."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.look.unpacked import Parsed
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from milepost import cli
from milepost.commands.subjects import texts_of
from milepost.hf import convert
from milepost.hf.tokenizer import bytewise, wordwise

from . import tiny
from .test_generate_command import write_run

TEXT = "né → 漢字 z\n  🙂.\ufffd"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def looked(*arguments: object) -> list[dict[str, Any]]:
    """What stands on the page."""
    assert cli.main(["look", *map(str, arguments), "--device", "cpu"]) == 0
    return Parsed(Path("look.html").read_text(encoding="utf-8")).subjects


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert cli.main(["look", *map(str, arguments), "--device", "cpu"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert not Path("look.html").exists()
    return printed.err


def fast(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)


@pytest.fixture
def folder(here: Path) -> Path:
    """A model for transformers that was never a run of ours."""
    tiny.make("llama", "cope", vocab_size=256).float().save_pretrained(here / "llama")
    fast(bytewise()).save_pretrained(here / "llama")
    return Path("llama")


@pytest.mark.parametrize("given", [(), ("--length", 8), ("--text", "w 0 i 1 r")])
def test_a_converted_run_is_seen_as_the_run(given: tuple[object, ...], here: Path) -> None:
    run = write_run(here / "run")
    convert.to_huggingface(run, here / "hf")
    ours, theirs = looked(run, here / "hf", *given)
    assert theirs["texts"] == ours["texts"]
    assert theirs["classes"] == ours["classes"]
    assert "bit" in theirs["classes"]
    assert theirs["title"] == "cope (hf)"
    for one, other in zip(theirs["layers"], ours["layers"], strict=True):
        found, expected = (torch.tensor(layer["counted"]["falls"]) for layer in (one, other))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_converted_run_of_text_is_given_any(here: Path) -> None:
    run = write_run(here / "run", "text", "fox", length=32)
    convert.to_huggingface(run, here / "hf")
    (about,) = looked(here / "hf", "--text", TEXT)
    assert "".join(about["texts"]) == TEXT
    assert len(about["texts"]) == len(TEXT.encode())


def test_any_model_with_our_attention_is_given_a_text(folder: Path) -> None:
    (about,) = looked(folder, "--text", TEXT)
    assert about["title"] == "cope (llama)"
    assert "".join(about["texts"]) == TEXT
    assert about["classes"] == ["letter", "other", "space", "newline", "sentence end"]
    assert about["about"] == f"{len(TEXT.encode())} tokens, 3 layers of 4 heads"
    (about,) = looked(folder, "--text", "abcdef", "--tokens", 4)
    assert about["texts"] == [*"abcd"]


def test_folders_that_cannot_be_looked_at(
    folder: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for given in ((), ("--length", 8), ("--task", "flip-flop")):
        assert "no task of its own to take a text from: give --text" in refused(
            capsys, folder, *given
        )
    assert "text must have at least one token, got none" in refused(capsys, folder, "--text", "")
    assert "must be Unicode" in refused(capsys, folder, "--text", "a\udcff")
    (here / "empty").mkdir()
    assert "it is neither: check the path" in refused(capsys, "empty", "--text", "a")
    tiny.stock("gpt2").save_pretrained("gpt2")
    assert "has no tokenizer: save that" in refused(capsys, "gpt2", "--text", "a")
    fast(wordwise(("a", "b"))).save_pretrained("gpt2")
    err = refused(capsys, "gpt2", "--text", "a")
    assert "model must attend by milepost.attention.attend" in err
    assert "unknown word 'c': valid: a, b" in refused(capsys, "gpt2", "--text", "a c")


def trained(model: Any, trainer: Any, around: Any, decoder: Any) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer, tokenizer.decoder = around, decoder
    tokenizer.train_from_iterator([TEXT, "né né the cat the cat"], trainer)
    return fast(tokenizer)


def of_bytes() -> PreTrainedTokenizerFast:
    """As GPT-2's, with merges."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=262, show_progress=False, initial_alphabet=sorted(alphabet)
    )
    around = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return trained(models.BPE(), trainer, around, decoders.ByteLevel())


def of_pieces() -> PreTrainedTokenizerFast:
    """As Llama's, which leaves out a first space when it decodes."""
    trainer = trainers.BpeTrainer(vocab_size=40, show_progress=False)
    return trained(models.BPE(), trainer, pre_tokenizers.Metaspace(), decoders.Metaspace())


@pytest.mark.parametrize(
    ("tokenizer", "text"),
    [
        (of_bytes, f"the cat né{TEXT} the"),
        (of_bytes, " \ufffd\ufffd é\ufffd"),
        (lambda: fast(bytewise()), TEXT),
        (of_pieces, "the cat né 漢 the 漢"),
        (lambda: fast(wordwise(("w", "0"))), "w 0 w"),
    ],
)
def test_the_texts_of_tokens_are_the_text(tokenizer: Any, text: str) -> None:
    made = tokenizer()
    tokens = made.encode(text)
    texts = texts_of(made, tokens)
    assert "".join(texts) == text
    assert len(texts) == len(tokens)


def test_the_last_token_of_a_character_stands_for_it() -> None:
    tokenizer = fast(bytewise())
    tokens = tokenizer.encode("a→é")
    assert texts_of(tokenizer, tokens) == ["a", "", "", "→", "", "é"]
    assert texts_of(tokenizer, tokens[:3]) == ["a", "", "\ufffd"]


class Contracting:
    """A tokenizer whose text changes when more tokens come."""

    def decode(self, tokens: list[int], **_: object) -> str:
        return " ".join(("it", "is", "n't")[token] for token in tokens).replace("is n't", "ain't")


def test_a_token_that_changes_those_before_it_stands_for_itself() -> None:
    assert texts_of(Contracting(), [0, 1, 2, 0]) == ["it", " is", "n't", " it"]
