import pytest

from milepost.report.claims import judge
from milepost.report.verdicts import FEW_SEEDS
from milepost.study.study import Claim

from .made_up import results, sums, text


def verdict(found, **claim):
    told = judge(found, Claim("a claim", "Table 1", **claim))
    return told.verdict, told.why


FOUND = results(
    {
        ("text", "rope"): text(4.0, 4.1, 4.2, longer=(6.0, 6.1, 6.2)),
        ("text", "cope"): text(3.0, 3.1, 3.2, longer=(9.0, 9.1, 9.2)),
        ("text", "fox"): text(4.1, 4.0, 4.2, longer=(5.0, 5.1, 5.2)),
        ("sums", "rope"): sums(0.1, 0.2, 0.3),
        ("sums", "cope"): sums(0.9, 0.8, 0.7),
    }
)


def test_all_comparisons_of_the_claim_have_to_come_out():
    better = {"better": ("cope",), "worse": ("rope", "fox")}
    assert verdict(FOUND, columns=("text/T",), **better) == (
        "seen here",
        "2 of 2 comparisons bear it out",
    )
    # lower at T, higher at 2 T: two of four each way
    told, why = verdict(FOUND, columns=("text",), **better)
    assert told == "not seen here"
    assert why.startswith("2 of 4 comparisons bear it out, 2 go the other way (cope and rope in")


def test_more_than_half_the_other_way_contradicts():
    told, why = verdict(FOUND, columns=("text/2 T",), better=("cope",), worse=("rope", "fox"))
    assert told == "contradicted here"
    assert "0 of 2" in why


def test_where_more_is_better_the_larger_is_ahead():
    told, _ = verdict(FOUND, columns=("sums",), better=("cope",), worse=("rope",))
    assert told == "seen here"
    told, _ = verdict(FOUND, columns=("sums",), better=("rope",), worse=("cope",))
    assert told == "contradicted here"


def test_rows_that_are_said_to_be_no_worse_may_be_better_or_neither():
    said = {"columns": ("text/T",), "no_worse": True}
    for better in ("fox", "cope"):
        assert verdict(FOUND, better=(better,), worse=("rope",), **said)[0] == "seen here"
    assert verdict(FOUND, better=("rope",), worse=("cope",), **said)[0] == "contradicted here"


@pytest.mark.parametrize(("share", "told"), [(0.3, "not seen here"), (0.34, "seen here")])
def test_how_far_apart_alike_may_be_is_a_share_of_the_smaller(share, told):
    """3.1 and 4.1 are a third apart."""
    alike = {"columns": ("text/T",), "better": ("cope",), "worse": ("rope",)}
    assert verdict(FOUND, **alike, same=share)[0] == told


def test_rows_that_are_said_to_be_alike_must_not_differ():
    same = {"columns": ("text/T",), "same": 0.01}
    assert verdict(FOUND, better=("fox",), worse=("rope",), **same)[0] == "seen here"
    told, why = verdict(FOUND, better=("cope",), worse=("rope",), **same)
    assert (told, why) == (
        "not seen here",
        "0 of 1 comparison bears it out, 1 differs (cope and rope in Text, T)",
    )


def test_a_number_to_be_reached_is_a_mean_in_the_tables_unit():
    assert verdict(FOUND, columns=("sums",), better=("cope",), within=80.0)[0] == "seen here"
    told, why = verdict(FOUND, columns=("sums",), better=("rope", "cope"), within=80.0)
    assert told == "not seen here"
    assert why == "rope 20.0 ± 10.0 in Sums, all; cope 80.0 ± 10.0 in Sums, all"
    assert verdict(FOUND, columns=("text/T",), better=("cope",), within=3.1)[0] == "seen here"
    assert verdict(FOUND, columns=("text/T",), better=("cope",), within=3.0)[0] == "not seen here"


def test_what_was_not_measured_is_not_testable():
    one = results({("text", "rope"): text(4.0), ("text", "cope"): text(3.0)})
    told, why = verdict(one, columns=("text/T",), better=("cope",), worse=("rope",))
    assert (told, why) == ("not testable here", FEW_SEEDS)
    told, why = verdict(one, columns=("sums",), better=("cope",), within=50.0)
    assert (told, why) == ("not testable here", FEW_SEEDS)
    told, why = verdict(one, columns=("text/T",), better=("cope",), within=50.0)
    assert (told, why) == ("not testable here", FEW_SEEDS)
    assert verdict(one, why_not="it is of GPT-4") == ("not testable here", "it is of GPT-4")


def test_a_claim_about_no_column_is_a_mistake_of_ours():
    with pytest.raises(AssertionError, match="no column"):
        verdict(FOUND, columns=("text/3 T",), better=("cope",), worse=("rope",))
