"""The wording of errors about names that do not exist."""

import pytest

from milepost.errors import UsageError, unknown

NAMES = ("reference", "native", "auto", "triton")


def test_it_is_a_value_error():
    assert issubclass(UsageError, ValueError)
    assert isinstance(unknown("backend", "x", NAMES), UsageError)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "nativ",
            "unknown backend 'nativ': did you mean 'native'? "
            "valid: auto, native, reference, triton",
        ),
        ("cuda", "unknown backend 'cuda': valid: auto, native, reference, triton"),
        (None, "unknown backend 'None': valid: auto, native, reference, triton"),
        (7, "unknown backend '7': valid: auto, native, reference, triton"),
        ("", "unknown backend '': valid: auto, native, reference, triton"),
    ],
)
def test_a_near_name_is_offered_and_all_are_listed(name, message):
    assert str(unknown("backend", name, NAMES)) == message


def test_several_near_names_come_nearest_first():
    message = str(unknown("task", "flip-flo", ("counting", "flip-flap", "flip-flop")))
    assert "did you mean 'flip-flop' or 'flip-flap'? valid: counting, " in message


def test_names_may_come_from_any_iterable():
    assert str(unknown("set", "c", iter({"b": 1, "a": 2}))) == "unknown set 'c': valid: a, b"
