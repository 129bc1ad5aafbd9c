"""`milepost retrofit`: the folder that it writes, and what it says."""

import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from milepost.cli import main
from milepost.commands import retrofit as command
from milepost.hf import MilepostForCausalLM
from milepost.hf.tokenizer import bytewise

from .tiny import VOCABULARY, stock, tokens


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A Llama without a tokenizer."""
    stock("llama").save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


@pytest.fixture
def with_tokenizer(tmp_path: Path) -> Path:
    """A GPT-2 for bytes."""
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path / "gpt2"
    stock("gpt2", vocab_size=256).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=bytewise()).save_pretrained(folder)
    return folder


def retrofit(*arguments: object) -> int:
    return main(["retrofit", *map(str, arguments)])


def rows(printed: str) -> dict[str, str]:
    """The table that was printed."""
    cells = (line.strip().split("  ", 1) for line in printed.splitlines() if "  " in line.strip())
    return {name: value.strip() for name, value in cells}


def test_what_starts_equal_is_said_to(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = ("--encoding-options", "p_max=16", "shared=true")
    assert retrofit(checkpoint, "--encoding", "cope", "--out", out, *options) == 0
    printed = capsys.readouterr()
    facts = rows(printed.out)
    assert facts["encoding"] == "cope+rope p_max=16 shared=True"
    model = AutoModelForCausalLM.from_pretrained(out)
    assert type(model) is MilepostForCausalLM
    total = sum(parameter.numel() for parameter in model.parameters())
    assert facts["parameters added"] == f"{17 * 8} of {total:,}"
    assert facts["compared on"] == "32 random tokens"
    assert float(facts["largest difference of a logit"].split()[0]) < 1e-6
    assert facts["same likeliest token"] == "100 %"
    assert "It starts as the original: what was added can be trained alone." in printed.out
    assert f"{checkpoint} has no tokenizer, and so has {out}" in printed.out
    assert "Warning" not in printed.err
    with torch.no_grad():
        expected = stock("llama")(input_ids=tokens()).logits
        torch.testing.assert_close(model(input_ids=tokens()).logits, expected, rtol=0, atol=1e-6)


def test_what_starts_as_another_model_is_said_once(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert retrofit(checkpoint, "--encoding", "fire", "--drop-rope", "--out", out) == 0
    printed = capsys.readouterr()
    assert float(rows(printed.out)["largest difference of a logit"].split()[0]) > 1e-5
    assert printed.out.count("It does not start as the original: train all of it") == 1
    assert "without --drop-rope: cope, " in printed.out
    assert "cope-mlp" not in printed.out  # which cannot stand beside RoPE
    assert "Warning" not in printed.err
    assert AutoModelForCausalLM.from_pretrained(out).config.encoding == "fire"


def test_without_parameters_nothing_can_be_trained_alone(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert retrofit(checkpoint, "--encoding", "shifted-sparse", "--out", tmp_path / "out") == 0
    assert "Nothing was added that could be trained alone" in capsys.readouterr().out


def test_on_a_text_with_the_checkpoint_s_tokenizer(
    with_tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "some [text].txt"
    text.write_text("to be or not to be " * 200)
    out = tmp_path / "out"
    given = ("--text", text, "--dtype", "bfloat16")
    assert retrofit(with_tokenizer, "--encoding", "tape", "--out", out, *given) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "compared on 40 tokens of" in printed  # the host's longest text
    assert "some [text].txt" in printed
    assert "no tokenizer" not in printed
    assert AutoTokenizer.from_pretrained(out)("ab").input_ids == [97, 98]
    assert AutoModelForCausalLM.from_pretrained(out).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--encoding", "copes"], "unknown encoding 'copes': did you mean 'cope'"),
        (["--encoding", "cope", "--encoding-options", "p=3"], "unknown option of encoding"),
        (["--encoding", "cope", "--encoding-options", "p_max"], "--encoding-options takes name="),
        (["--encoding", "fire"], "encoding 'fire' cannot stand beside the host's RoPE"),
        (["--encoding", "cope", "--text", "no.txt"], "--text needs the checkpoint's tokenizer"),
    ],
)
def test_mistakes_leave_nothing_behind(
    arguments: list[str],
    message: str,
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert retrofit(checkpoint, "--out", tmp_path / "out", *arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert message in printed.err
    assert [path.name for path in tmp_path.iterdir()] == ["llama"]


def test_texts_that_cannot_be_compared_on(
    with_tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--encoding", "cope", "--out", tmp_path / "out", "--text")
    (tmp_path / "empty").touch()
    assert retrofit(with_tokenizer, *given, tmp_path / "empty") == 2
    assert "which is empty" in capsys.readouterr().err
    assert retrofit(with_tokenizer, *given, tmp_path / "nowhere") == 2
    assert "cannot read" in capsys.readouterr().err


def test_an_existing_folder_is_never_touched(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    assert retrofit(checkpoint, "--encoding", "cope", "--out", tmp_path / "out") == 2
    assert "out exists already, and is left as it is" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


def test_what_is_not_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import BertConfig

    assert retrofit(tmp_path / "nowhere", "--encoding", "cope", "--out", tmp_path / "out") == 2
    assert "nowhere: give a checkpoint's folder or its name on the Hub" in capsys.readouterr().err
    BertConfig(vocab_size=VOCABULARY).save_pretrained(tmp_path / "bert")
    assert retrofit(tmp_path / "bert", "--encoding", "cope", "--out", tmp_path / "out") == 2
    assert "into a model of type 'bert' yet" in capsys.readouterr().err


def test_without_transformers_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.split(".")[:2] == ["milepost", "hf"]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(sys.modules["milepost"], "hf")
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert retrofit("any", "--encoding", "cope", "--out", tmp_path / "out") == 2
    assert "pip install 'milepost[hf]'" in capsys.readouterr().err


def test_a_text_is_read_no_further_than_it_is_needed(with_tokenizer: Path, tmp_path: Path) -> None:
    text = tmp_path / "long"
    text.write_text("a" * 100_000)
    arguments = command.Arguments(
        checkpoint=str(with_tokenizer), encoding="cope", out=tmp_path / "out", text=text
    )
    found = command.probe(arguments, command.tokenizer_of(str(with_tokenizer)))
    assert found is not None
    assert found.shape == (1, command.TOKENS)
