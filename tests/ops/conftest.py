"""The ops' tests check the shape annotations of the reference at every call."""

from collections.abc import Iterator

import pytest
from jaxtyping import config


@pytest.fixture(autouse=True)
def checked_shapes() -> Iterator[None]:
    config.update("jaxtyping_disable", False)
    yield
    config.update("jaxtyping_disable", True)
