import pytest

from milepost.report.verdicts import FEW_SEEDS, Judged, borne_out, told, untestable, verdict
from milepost.study.study import Claim


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ([1, 1], "seen here"),
        ([1, 0], "not seen here"),
        ([1, -1], "not seen here"),  # one of two is no majority
        ([0, -1, -1], "contradicted here"),
        ([0, 0], "not seen here"),
        ([True, False], "not seen here"),
        ([True, True], "seen here"),
    ],
)
def test_all_as_claimed_is_seen_and_most_the_other_way_contradicts(outcomes, said):
    assert verdict(outcomes) == said


def test_a_line_of_a_claim():
    judged = Judged(Claim("it is so", "Table 1"), "not seen here", "it is not")
    assert str(judged) == "Not seen here: it is so (Table 1): it is not."


@pytest.mark.parametrize(
    ("held", "of", "said"),
    [
        (0, 1, "0 of 1 comparison bears it out"),
        (1, 1, "1 of 1 comparison bears it out"),
        (1, 3, "1 of 3 comparisons bears it out"),
        (2, 3, "2 of 3 comparisons bear it out"),
        (0, 3, "0 of 3 comparisons bear it out"),
    ],
)
def test_what_bears_a_claim_out(held, of, said):
    assert borne_out(held, of) == said


def test_claims_that_lack_a_second_seed_share_a_line():
    seen = Judged(Claim("it is so", "Table 1"), "seen here", "3 of 3")
    few = [untestable(Claim(text, "Table 2"), FEW_SEEDS) for text in ("one", "two")]
    other = untestable(Claim("it is so", "Table 1"), "no model is here")
    assert told([few[0], other]) == [str(few[0]), str(other)]
    assert told([few[0], other, few[1]]) == [
        "Not testable here: it is so (Table 1): no model is here.",
        "Not testable here: 2 claims need two seeds of each row: one (Table 2); two (Table 2).",
    ]
    # where others are judged, rows are missing, and each says so in its place
    assert told([few[0], seen, few[1]]) == [str(few[0]), str(seen), str(few[1])]
