"""Every test: one thread, the same seed, and a reference whose shape annotations can be checked.

Where there is no GPU, Triton interprets kernels: `tests/ops/triton`. Others never meet them, as
`auto` does not take an interpreted kernel. Triton asks when it is imported, and no test did before.
"""

import os

import pytest
import torch
from jaxtyping import config, install_import_hook

# Before the first import of `milepost.ops`. torch.compile cannot trace the checks, so they are off
# except in `tests/ops`.
install_import_hook("milepost.ops.reference", "beartype.beartype")
config.update("jaxtyping_disable", True)

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
