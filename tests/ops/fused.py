"""What the tests of every fused backend have in common: which ops there are, and how one is called.

A test that takes `some_op` runs for each of `some`.
"""

from collections.abc import Callable
from typing import Any

import pytest

from .exact import FUSED

every_fused_op = pytest.mark.parametrize("op", FUSED.values(), ids=FUSED)


class Fused:
    backend: str
    kernels: Callable[..., Any]  # an op's function by them; its results come back
    some = tuple(FUSED)  # fewer, where calls are slow

    def pytest_generate_tests(self, metafunc):
        if "some_op" in metafunc.fixturenames:
            metafunc.parametrize("some_op", [FUSED[name] for name in self.some], ids=self.some)
