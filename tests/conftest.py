"""Every test: one thread, the same seed, and a reference whose shape annotations can be checked."""

import pytest
import torch
from jaxtyping import config, install_import_hook

# Before the first import of `milepost.ops`. torch.compile cannot trace the checks, so they are off
# except in `tests/ops`.
install_import_hook("milepost.ops.reference", "beartype.beartype")
config.update("jaxtyping_disable", True)

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
