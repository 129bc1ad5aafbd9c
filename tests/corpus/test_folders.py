"""WikiText's files as they are published: which articles, which split, and every byte."""

import io
from pathlib import Path

import pytest

from milepost import corpus
from milepost.corpus.folders import articles
from milepost.corpus.splits import split_of


def article(title: str) -> bytes:
    return (
        f" \n = {title} = \n \n {title} is in an article . \n = = Section = = \n \n = 5 = \n"
        f" was the end of a formula . \n"
    ).encode()


TITLES = [f"Article {n}" for n in range(60)]
VALID = b"".join(map(article, TITLES)) + b" \n"
TEST = article("Test") + article("Other") + b" \n"


def test_an_article_begins_with_its_title_between_blank_lines() -> None:
    found = list(articles(io.BytesIO(VALID)))
    assert [title for title, _ in found] == TITLES
    assert b"".join(text for _, text in found) == VALID
    assert found[7][1] == article("Article 7")


def test_a_title_may_have_signs_of_its_own() -> None:
    text = article("E = mc²") + article("2 + 2")
    assert [title for title, _ in articles(io.BytesIO(text))] == ["E = mc²", "2 + 2"]


@pytest.mark.parametrize("suffix", ["tokens", "raw"])
def test_three_files_are_the_three_splits(tmp_path: Path, suffix: str) -> None:
    texts = {"train": VALID, "valid": article("V"), "test": TEST}
    for part, text in texts.items():
        (tmp_path / f"wiki.{part}.{suffix}").write_bytes(text)
    (tmp_path / "README.md").write_bytes(b"not of it")
    loaded = corpus.load(str(tmp_path))
    assert [loaded[split].tobytes() for split in corpus.SPLITS] == [*texts.values()]


def test_without_a_training_file_the_articles_of_validation_are_shared(tmp_path: Path) -> None:
    (tmp_path / "wiki.valid.tokens").write_bytes(VALID)
    (tmp_path / "wiki.test.tokens").write_bytes(TEST)
    loaded = corpus.load(str(tmp_path))
    expected = {
        split: b"".join(
            text
            for title, text in articles(io.BytesIO(VALID))
            if (split_of(title) == "train") == (split == "train")
        )
        for split in ("train", "validation")
    }
    assert expected["train"]
    assert expected["validation"]
    assert {split: loaded[split].tobytes() for split in expected} == expected
    assert loaded["test"].tobytes() == TEST


def test_only_wikitext_counts_its_line_ends(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"text")
    assert not corpus.line_ends_are_words(str(tmp_path))
    assert not corpus.line_ends_are_words("python-prose")
    (tmp_path / "wiki.test.tokens").write_bytes(TEST)
    assert corpus.line_ends_are_words(str(tmp_path))
