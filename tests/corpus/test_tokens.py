"""Tokens: learned without chance, in chunks as in one piece, and back to the byte."""

import sys
from pathlib import Path

import numpy as np
import pytest

from milepost import corpus
from milepost.corpus import store, tokens
from milepost.errors import UsageError

pytest.importorskip("tokenizers")

WORDS = ["naïve", "東京", "the", "quick", "brown", "fox", "🙂", "  indented", "a", "\tb", "ß"]


def prose(count: int, seed: int) -> str:
    rng = np.random.default_rng(seed)
    ends = [" ", " ", " ", "\n", "\n\n", " \n "]
    return "".join(str(rng.choice(WORDS)) + str(rng.choice(ends)) for _ in range(count))


@pytest.fixture
def folder(tmp_path: Path) -> str:
    for seed, split in enumerate(corpus.SPLITS):
        (tmp_path / f"{split}.txt").write_text(prose(2000, seed))
    return str(tmp_path)


def test_learning_twice_gives_the_same(folder: str) -> None:
    first = tokens.tokenizer(folder, 290)
    tokens._trained.cache_clear()
    second = tokens.tokenizer(folder, 290)
    assert second is not first
    assert second.to_str() == first.to_str()
    assert len(tokens.names(first)) == len(set(tokens.names(first))) == 290
    assert sorted(tokens.names(first)[:256]) == sorted(tokens.alphabet())
    assert not [name for name in tokens.names(first) if any(map(str.isspace, name))]


def test_only_the_training_documents_are_learned_from(folder: str, tmp_path: Path) -> None:
    first = tokens.tokenizer(folder, 290).to_str()
    (tmp_path / "test.txt").write_text("zzzz " * 5000)
    for cached in (corpus._load, tokens._trained):
        cached.cache_clear()
    assert tokens.tokenizer(folder, 290).to_str() == first


@pytest.mark.parametrize("chunk", [1, 7, 1000, 2**20])
def test_in_chunks_as_in_one_piece(
    folder: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = tokens.tokenizer(folder, 290)
    text = corpus.load(folder)["test"]
    # a chunk looks up to its own length ahead for a place to cut at
    monkeypatch.setattr(tokens, "CHUNK", chunk)
    parts = list(tokens.texts(text))
    assert "".join(parts).encode() == text.tobytes()
    ids = np.concatenate(list(tokens.encoded(of, text, np.dtype(np.uint16))))
    assert tokens.bytes_of(of, ids) == text.tobytes()
    if chunk >= 1000:
        assert ids.tolist() == of.encode(text.tobytes().decode()).ids
    assert (len(parts) > 5) == (chunk < 2**20)


def test_any_bytes_come_back_from_part_of_a_character(folder: str) -> None:
    of = tokens.tokenizer(folder, 257)
    ids = np.array(of.encode("東🙂é").ids)
    whole = "東🙂é".encode()
    for cut in range(len(ids)):
        assert whole == tokens.bytes_of(of, ids[:cut]) + tokens.bytes_of(of, ids[cut:])


def test_a_big_corpus_has_its_tokens_in_a_file(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [tokens.load(folder, 290, split) for split in corpus.SPLITS]
    monkeypatch.setenv("MILEPOST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "SMALL", 100)
    for _ in range(2):
        tokens._load.cache_clear()
        mapped = [tokens.load(folder, 290, split) for split in corpus.SPLITS]
        assert all(isinstance(found, np.memmap) for found in mapped)
        assert all(found.dtype == np.uint16 for found in mapped)
        assert all(map(np.array_equal, mapped, held))
        assert len(list((tmp_path / "cache" / "corpora").iterdir())) == 1, "found again"
    tokens.load(folder, 291, "test")
    assert len(list((tmp_path / "cache" / "corpora").iterdir())) == 2, "of another tokenizer"


def test_a_tokenizer_from_a_file(folder: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokens.tokenizer(folder, 290).save(str(path))
    for split in corpus.SPLITS:
        found = tokens.load(folder, str(path), split)
        assert np.array_equal(found, tokens.load(folder, 290, split))


def test_special_tokens_are_left_out(folder: str, tmp_path: Path) -> None:
    import tokenizers

    words = {"[UNK]": 0, "[BOS]": 1, "the": 2, "fox": 3, "two words": 4}
    of = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "[UNK]"))
    of.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    of.post_processor = tokenizers.processors.TemplateProcessing(
        single="[BOS] $A", special_tokens=[("[BOS]", 1)]
    )
    of.save(str(tmp_path / "words.json"))
    assert 1 not in tokens.load(folder, str(tmp_path / "words.json"), "test")
    assert tokens.names(of) == ("[UNK]", "[BOS]", "the", "fox", "two␣words")
    assert tokens.bytes_of(of, np.array([2, 3])) == b"the fox"


def test_mistakes_are_named(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = r"tokens: expected at most ([0-9]+), as many as .*: give more text, as corpus=PATH"
    with pytest.raises(UsageError, match=rf"{message} or corpus=hf:NAME, or fewer, as tokens=\1$"):
        tokens.tokenizer(folder, 2**20)
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(UsageError, match=r"path of a tokenizer.json, got .*no\.json"):
        tokens.tokenizer(folder, str(tmp_path / "no.json"))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UsageError, match=r"needs tokenizers, .* pip install 'milepost\[text\]'"):
        tokens.tokenizer(folder, 300)
