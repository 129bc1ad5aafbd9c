"""transformers without its progress bars, which draw on standard error."""

import pytest
from transformers.utils import logging


@pytest.fixture(autouse=True, scope="session")
def quiet() -> None:
    logging.disable_progress_bar()
