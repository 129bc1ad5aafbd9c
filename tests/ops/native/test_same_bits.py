"""Results do not depend on the number of threads, nor on what ran before: bit by bit."""

import pytest
import torch

from milepost.ops import native

from ..cases import Case, cast, gradients, parts
from ..exact import FUSED, on

pytestmark = [
    pytest.mark.skipif(native.isa() is None, reason=str(native.missing())),
    pytest.mark.usefixtures("poisoned"),
]

CASES = {
    "one long head, in stretches": Case(B=1, H=1, G=1, S=2200, T=2200, D=8, V=8),
    "grouped": Case("padding", H=6, G=2, S=150, T=200, D=9, span=150),
    "decoding": Case(B=3, H=4, G=2, S=1, T=200),
}


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("op", FUSED.values(), ids=FUSED)
def test_any_number_of_threads_gives_the_same(op, case):
    given, call = cast(op.operands(case), torch.float32), on("native", op)

    def run(threads):
        torch.set_num_threads(threads)
        return *parts(call(**given)), *gradients(call, given).values()

    expected = run(1)
    for threads in (1, 2, 3, 5):
        for one, other in zip(run(threads), expected, strict=True):
            assert torch.equal(one, other), threads
