"""Splits: what is published stays where it is, and what is missing is cut out of the rest."""

import pytest

from milepost.corpus.splits import SPLITS, published, split_of

NAMES = [f"document {n}" for n in range(3000)]
PARTS = {part: [(f"{part} {name}", b"text") for name in NAMES] for part in SPLITS}


def found(*parts: str) -> dict[tuple[str, str], int]:
    """How many documents of a part are in a split."""
    counts: dict[tuple[str, str], int] = {}
    names = []
    for split, name, _ in published({part: PARTS[part] for part in parts}):
        key = name.split()[0], split
        counts[key] = counts.get(key, 0) + 1
        names.append(name)
    assert len(names) == len(set(names)) == len(parts) * len(NAMES)
    return counts


def test_three_parts_stay_as_they_are() -> None:
    assert found(*SPLITS) == {(part, part): 3000 for part in SPLITS}


@pytest.mark.parametrize("part", ["train", "validation"])
def test_a_part_beside_the_test_is_nine_tenths_training(part: str) -> None:
    counts = found(part, "test")
    assert set(counts) == {(part, "train"), (part, "validation"), ("test", "test")}
    assert counts["test", "test"] == 3000
    assert abs(counts[part, "validation"] - 300) < 5 * (3000 * 0.1 * 0.9) ** 0.5


def test_without_a_test_the_published_validation_is_tested_on() -> None:
    counts = found("train", "validation")
    assert set(counts) == {("train", "train"), ("train", "validation"), ("validation", "test")}
    assert counts["validation", "test"] == 3000


@pytest.mark.parametrize("part", ["train", "validation"])
def test_one_part_alone_is_split_by_name(part: str) -> None:
    for split, name, _ in published({part: PARTS[part]}):
        assert split == split_of(name)
    assert len(found(part)) == 3


def test_a_test_alone_trains_nothing() -> None:
    assert found("test") == {("test", "test"): 3000}
