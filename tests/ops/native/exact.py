"""Every instruction set's kernels against the reference in fp64."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from milepost.ops import native
from milepost.ops.native import _scan

from ..cases import Op, gradients, parts
from ..exact import differences, exactly, on, small_beside_their_terms


def instruction_sets() -> Iterator[str]:
    """Each that this machine has, in use."""
    for name in native.isas():
        with native.use(name):
            yield name


@contextmanager
def poison() -> Iterator[None]:
    """A kernel's scratch memory, and the tensors that it writes, start as NaN."""
    _scan.POISON = True
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(1000).isnan().all()
        yield
    finally:
        _scan.POISON = False
        torch.use_deterministic_algorithms(False)


def check(op: Op, given: dict[str, Any], *, of_terms: bool = False, **options: Any) -> None:
    """Every instruction set's results and gradients are those of the reference in fp64.

    `of_terms`: see `small_beside_their_terms`.
    """
    exact = exactly(op, given)
    terms = small_beside_their_terms(op, given, of_terms=of_terms)
    call = on("native", op, **options)
    found = {
        isa: differences((parts(call(**given)), gradients(call, given)), exact, terms)
        for isa in instruction_sets()
    }
    assert not any(found.values()), found
