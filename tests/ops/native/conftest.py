"""Memory that a kernel forgets to write shows."""

from collections.abc import Iterator

import pytest

from .exact import poison


@pytest.fixture
def poisoned() -> Iterator[None]:
    with poison():
        yield
