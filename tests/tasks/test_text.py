"""Windows of bytes: from which documents, where they begin, and what is scored."""

import re
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest
import torch

from milepost import corpus
from milepost.errors import UsageError
from milepost.tasks import build
from milepost.tasks.text import BYTES, Text, decode, encode

FOLDER = Path(__file__).parent / "corpus"
TEXTS = {split: (FOLDER / f"{split}.txt").read_bytes() for split in corpus.SPLITS}


def windows(task: Text, split: str, size: int, seed: int = 0) -> list[bytes]:
    return [bytes(row) for row in task.batch(seed, split, 0, size).tokens.tolist()]


@pytest.fixture
def task() -> Text:
    return Text(corpus=str(FOLDER), length=20)


@pytest.mark.parametrize(
    ("split", "documents"),
    [
        ("train", "train"),
        ("validation", "validation"),
        ("test", "test"),
        ("example", "test"),
        ("length x2", "test"),
    ],
)
def test_windows_are_of_the_documents_of_the_split(task: Text, split: str, documents: str) -> None:
    assert all(window in TEXTS[documents] for window in windows(task, split, 64))
    assert bytes(task.text(split).tolist()) == TEXTS[documents]


def test_starts_are_uniform_over_all_places(task: Text) -> None:
    text = TEXTS["train"]
    places = len(text) - 20 + 1
    starts = Counter(text.index(window) for window in windows(task, "train", 200 * places))
    assert set(starts) == set(range(places)), "the first and the last place too"
    assert all(abs(count - 200) < 5 * 200**0.5 for count in starts.values())


def test_all_bytes_but_the_first_are_scored(task: Text) -> None:
    batch = task.batch(0, "train", 0, 3)
    assert batch.scored.tolist() == [[False] + [True] * 19] * 3
    assert batch.targets.equal(batch.tokens[:, 1:])


def test_a_window_may_be_the_whole_text() -> None:
    whole = Text(corpus=str(FOLDER), length=len(TEXTS["test"]))
    assert windows(whole, "test", 2) == [TEXTS["test"]] * 2


def test_a_window_longer_than_the_text_is_refused() -> None:
    long = Text(corpus=str(FOLDER), length=len(TEXTS["test"]) + 1)
    message = f"expected at most {len(TEXTS['test'])}, the bytes of the test documents"
    with pytest.raises(UsageError, match=message):
        long.batch(0, "test", 0, 1)


def test_the_splits_of_the_default_text_share_no_sentence() -> None:
    task = build("text")
    found = {split: set(bytes(task.text(split).tolist()).split(b"\n\n")) for split in corpus.SPLITS}
    train, test = (
        {text for text in found[split] if len(text) > 400} for split in ("train", "test")
    )
    assert len(train) > 500
    assert len(test) > 10
    # two modules may be documented in the same words
    assert len(train & test) < 0.1 * len(test)


def test_bytes_have_names_that_can_be_told_apart() -> None:
    assert len(BYTES) == len(set(BYTES)) == 256
    shown = [BYTES[byte] for byte in b"a~\\ \n\t\r\x00\x7f\xff"]
    assert shown == ["a", "~", "\\", "␣", "\\n", "\\t", "\\r", "0x00", "0x7f", "0xff"]
    assert not [name for name in BYTES if " " in name]


def test_text_becomes_bytes_and_text_again() -> None:
    assert encode("né\n") == [110, 195, 169, 10]
    assert decode(encode("né\n")) == "né\n"
    assert decode([195]) == "�"


def test_the_example_is_one() -> None:
    line, marks = re.search(r"^(.+)\n([ ^]+\^)$", Text.__doc__ or "", re.MULTILINE).groups()  # type: ignore[union-attr]
    tokens = [BYTES.index(word) for word in line.split()]
    shown = Text().show(tokens, [place > 0 for place in range(len(tokens))])
    assert dedent(f"{line}\n{marks}") == shown


def test_the_test_sets_are_longer_windows_of_the_same_text(task: Text) -> None:
    sets = task.test_sets()
    assert {name: one.task.max_length for name, one in sets.items()} == {
        "in": 20,
        "length x2": 40,
        "length x4": 80,
    }
    assert {one.task.corpus for one in sets.values() if isinstance(one.task, Text)} == {str(FOLDER)}


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("corpus", "python-prosa"),
        ("corpus", 3),
        ("corpus", "no/such/folder"),
        ("length", 1),
        ("length", 8.0),
        ("length", True),
    ],
)
def test_bad_settings_are_the_callers_mistake(setting: str, value: object) -> None:
    with pytest.raises(UsageError, match=rf"^setting '{setting}' of the text task: ") as error:
        build("text", **{setting: value})
    default = getattr(Text(), setting)
    assert f"got {value!r}; leave it out for {default}" in str(error.value)


def test_a_small_model_learns_what_follows_a_byte(task: Text) -> None:
    """Of a text this short even a table of pairs of bytes knows much: the data is not noise."""
    table = torch.zeros(256, 256, requires_grad=True)
    optimizer = torch.optim.Adam([table], lr=0.3)
    losses = []
    for step in range(40):
        batch = task.batch(0, "train", step, 16)
        loss = torch.nn.functional.cross_entropy(
            table[batch.inputs].flatten(0, 1), batch.targets.flatten()
        )
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[0] == pytest.approx(torch.tensor(256.0).log().item())
    assert losses[-1] < 2.2


def test_other_tokens_are_windows_of_the_same_text() -> None:
    pytest.importorskip("tokenizers")
    other = Text(corpus=str(FOLDER), length=8, tokens=270)
    assert other.vocab_size == len(other.vocab) == len(set(other.vocab)) == 270
    tokens = other.text("test")
    assert tokens.dtype == torch.int64
    assert other.bytes_of(tokens) == TEXTS["test"]
    assert len(tokens) < len(TEXTS["test"])
    batch = other.batch(0, "train", 0, 16)
    assert batch.tokens.shape == (16, 8)
    assert all(other.bytes_of(row) in TEXTS["train"] for row in batch.tokens)
    assert {one.task.vocab for one in other.test_sets().values()} == {other.vocab}


def test_too_many_tokens_for_a_small_corpus_are_found_before_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("tokenizers")
    many = Text(corpus=str(FOLDER), length=8, tokens=50_257)
    with pytest.raises(UsageError, match=r"tokens: expected at most [0-9]+.* got 50257: give more"):
        many.check()
    Text(corpus=str(FOLDER), length=8, tokens=270).check()
    monkeypatch.setattr("milepost.corpus.store.SMALL", 1)
    many.check()  # of a big one that would take too long


def test_tokens_from_a_file_are_those_learned(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    learned = Text(corpus=str(FOLDER), length=8, tokens=270)
    learned.tokenizer.save(str(tmp_path / "tokenizer.json"))
    read = Text(corpus=str(FOLDER), length=8, tokens=str(tmp_path / "tokenizer.json"))
    assert read.batch(0, "train", 0, 4).tokens.equal(learned.batch(0, "train", 0, 4).tokens)


def test_the_beginning_of_a_split_is_enough(task: Text) -> None:
    assert bytes(task.text("test", 30).tolist()) == TEXTS["test"][:30]
    assert task.bytes_of(task.text("test", 30)) == TEXTS["test"][:30]


def test_a_dataset_is_taken_by_its_name_and_not_asked_for() -> None:
    assert Text(corpus="hf:allenai/c4:en#1000").vocab_size == 256


@pytest.mark.parametrize("tokens", ["byte", "no/such/tokenizer.json", 256, 300.0, True])
def test_bad_tokens_are_the_callers_mistake(tokens: object) -> None:
    with pytest.raises(UsageError, match=r"^setting 'tokens' of the text task: expected bytes, an"):
        build("text", tokens=tokens)
