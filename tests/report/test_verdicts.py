import pytest

from milepost.report.verdicts import Judged, verdict
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
