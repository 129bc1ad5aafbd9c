"""The ops' tests check the shape annotations of the reference at every call."""

from collections.abc import Iterator

import pytest
from jaxtyping import config

# What every fused backend's tests have as their base
pytest.register_assert_rewrite(f"{__package__}.semantics", f"{__package__}.as_operators")


@pytest.fixture(autouse=True)
def checked_shapes() -> Iterator[None]:
    config.update("jaxtyping_disable", False)
    yield
    config.update("jaxtyping_disable", True)
