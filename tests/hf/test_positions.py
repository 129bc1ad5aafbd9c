"""Masks and position ids: what they are read as, and what is refused."""

import pytest
import torch

from milepost.errors import UsageError
from milepost.hf.positions import positions

CPU = torch.device("cpu")


def at(
    mask: list[list[int]] | None = None,
    ids: list[list[int]] | None = None,
    *,
    batch: int = 1,
    length: int = 5,
    first: int = 0,
):
    found, _ = positions(
        batch,
        length,
        first,
        CPU,
        None if mask is None else torch.tensor(mask),
        None if ids is None else torch.tensor(ids),
    )
    return found


def test_without_either_all_is_seen_and_counted_from_the_cache_on() -> None:
    found = at(first=3)
    assert found.start is None
    assert found.index.tolist() == [3, 4, 5, 6, 7]
    assert found.bound == found.end == 8


def test_a_mask_of_ones_is_no_mask() -> None:
    assert at([[1] * 5]).start is None


def test_left_padding_begins_each_row() -> None:
    found = at([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], batch=2)
    assert found.start.tolist() == [[2] * 5, [0] * 5]
    assert found.index.tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]


def test_left_padding_holds_for_cached_tokens() -> None:
    found = at([[0, 0, 1, 1, 1, 1]], length=2, first=4)
    assert found.start.tolist() == [[2, 2]]
    assert found.index.tolist() == [[2, 3]]


def test_padding_at_the_right_is_seen_by_nothing() -> None:
    assert at([[1, 1, 1, 0, 0]]).start is None


def test_both_sides_may_be_padded() -> None:
    assert at([[0, 1, 1, 1, 0]]).start.tolist() == [[1] * 5]


def test_ids_that_begin_anew_are_documents() -> None:
    found = at(ids=[[0, 1, 0, 1, 2]])
    assert found.start.tolist() == [[0, 0, 2, 2, 2]]
    assert found.index.tolist() == [0, 1, 0, 1, 2]


def test_documents_of_one_token() -> None:
    assert at(ids=[[0, 0, 0, 1, 0]]).start.tolist() == [[0, 1, 2, 2, 4]]


def test_each_row_has_its_own_documents() -> None:
    found = at(ids=[[0, 1, 2, 3, 4], [0, 1, 2, 0, 1]], batch=2)
    assert found.start.tolist() == [[0] * 5, [0, 0, 0, 3, 3]]


def test_ids_as_generate_makes_them_for_padded_rows() -> None:
    found = at([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], [[1, 1, 0, 1, 2], [0, 1, 2, 3, 4]], batch=2)
    assert found.start[0, 2:].tolist() == [2, 2, 2]
    assert found.start[1].tolist() == [0] * 5
    assert found.index[0, 2:].tolist() == [0, 1, 2]


def test_ids_that_are_shifted_are_bounded() -> None:
    found = at(ids=[[100, 101, 102, 103, 104]])
    assert found.start is None
    assert found.bound == 105
    assert found.end == 5


@pytest.mark.parametrize(
    ("mask", "row"), [([[1, 0, 1, 1, 1]], 0), ([[1, 1, 1, 1, 1], [0, 1, 0, 0, 1]], 1)]
)
def test_a_mask_with_a_gap_is_refused(mask: list[list[int]], row: int) -> None:
    with pytest.raises(UsageError, match=rf"zeros between ones.*in row {row}: pad prompts at the"):
        at(mask, batch=len(mask))


def test_right_padded_prompts_cannot_be_continued() -> None:
    with pytest.raises(UsageError, match="padding_side = 'left'"):
        at([[1, 1, 0, 1]], length=1, first=3)
    with pytest.raises(UsageError, match="new tokens that are padding"):
        at([[1, 1, 1, 0]], length=1, first=3)


@pytest.mark.parametrize(
    ("mask", "got"),
    [
        (torch.ones(1, 1, 5, 5), "4 axes"),
        ({"full_attention": torch.ones(1, 1, 5, 5)}, "dict"),
    ],
)
def test_a_mask_of_pairs_is_refused(mask: object, got: str) -> None:
    with pytest.raises(UsageError, match=rf"\(batch, tokens\), 0 at padding, got {got}"):
        positions(1, 5, 0, CPU, mask, None)  # type: ignore[arg-type]


def test_a_mask_of_another_length_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"\(batch, cached and new tokens\) = \(1, 8\), got \(1, 5"
    ):
        at([[1] * 5], first=3)


def test_ids_with_a_gap_are_refused() -> None:
    with pytest.raises(UsageError, match=r"position_ids must go up by one.*got a jump upwards"):
        at(ids=[[0, 1, 5, 6, 7]])


def test_ids_of_another_shape_are_refused() -> None:
    with pytest.raises(UsageError, match=r"\(batch, tokens\) = \(1, 5\), got \(1, 4\)"):
        at(ids=[[0, 1, 2, 3]])


def test_a_document_that_begins_in_a_later_call_is_refused() -> None:
    with pytest.raises(UsageError, match="where tokens are cached, got a document that begins"):
        at(ids=[[5, 6, 0, 1, 2]], first=5)
