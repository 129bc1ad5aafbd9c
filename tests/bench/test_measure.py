import gc

import pytest

from milepost.bench.measure import WARM_ROUNDS, Limits, paired
from milepost.bench.results import quotient


class Machine:
    """A clock that stands still but for the calls, and a machine that gets slower and slower."""

    def __init__(self, drift=1.0):
        self.now, self.pace, self.drift = 0.0, 1.0, drift
        self.ran = []

    def clock(self):
        return self.now

    def takes(self, name, seconds):
        def call():
            self.now += seconds * self.pace
            self.pace *= self.drift
            self.ran.append(name)

        return call


def test_each_round_runs_everyone_in_alternating_order():
    machine = Machine()
    calls = {name: machine.takes(name, 1.0) for name in "abc"}
    paired(calls, Limits(most=3, seconds=100), machine.clock)
    assert "".join(machine.ran) == "abc" + "abccbaabc"


def test_a_ratio_is_that_of_the_work_done():
    machine = Machine()
    calls = {"sdpa": machine.takes("sdpa", 2.0), "ours": machine.takes("ours", 3.0)}
    taken = paired(calls, Limits(most=4, seconds=1000), machine.clock)
    assert taken == {"sdpa": [2.0] * 4, "ours": [3.0] * 4}
    assert quotient(taken["ours"], taken["sdpa"]) == 1.5


def test_a_drifting_machine_leaves_the_ratio_alone():
    machine = Machine(drift=1.05)
    calls = {"sdpa": machine.takes("sdpa", 2.0), "ours": machine.takes("ours", 3.0)}
    taken = paired(calls, Limits(most=10, seconds=1000), machine.clock)
    assert taken["sdpa"][-1] > 2 * taken["sdpa"][0]
    # half of the rounds see it 1.05 times too long and half too short: the median is between
    assert quotient(taken["ours"], taken["sdpa"]) == pytest.approx(1.5, rel=2e-3)


@pytest.mark.parametrize(
    ("limits", "rounds"),
    [
        (Limits(most=40, seconds=20, least=5), 10),  # 20 s are over
        (Limits(most=40, seconds=1, least=5), 5),  # but five there are in any case
        (Limits(most=4, seconds=20, least=5), 4),
        (Limits(most=3, seconds=0, least=5), 3),
    ],
)
def test_rounds_are_as_many_as_fit(limits, rounds):
    machine = Machine()
    assert (
        len(paired({"sdpa": machine.takes("sdpa", 2.0)}, limits, machine.clock)["sdpa"]) == rounds
    )


def test_quick_calls_are_warmed_up_longer():
    machine = Machine()
    paired({"sdpa": machine.takes("sdpa", 1e-6)}, Limits(most=1), machine.clock)
    assert len(machine.ran) == WARM_ROUNDS + 1


def test_collecting_garbage_is_left_as_it_was():
    def fail():
        assert gc.isenabled() == warming.pop()
        raise OSError

    warming = [True]
    with pytest.raises(OSError, match=r"^$"):
        paired({"sdpa": fail}, Limits())
    machine = Machine()
    paired({"sdpa": machine.takes("sdpa", 1.0)}, Limits(), machine.clock)
    assert gc.isenabled()
