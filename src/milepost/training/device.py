"""Where a run happens, and a random state of its own there."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from milepost.errors import UsageError

TYPES = ("cpu", "cuda")

UNSUITABLE = "the ops add in fp64, which mps has not; meta has no values; others are not tested"


def choose(name: str | None) -> torch.device:
    """The CPU or GPU of that name; the first GPU, or else the CPU, if None."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        if torch.device(name).type not in TYPES:
            raise RuntimeError(UNSUITABLE)
        # asks for the device as well as for its name
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"device {name!r} cannot be used here ({str(error).splitlines()[0]}): give 'cpu', or "
            "'cuda' where torch finds a GPU"
        ) from error


@contextmanager
def randomness_of(seed: int, device: torch.device) -> Iterator[None]:
    """Within, torch's generators are those of a process begun with `seed`; without, untouched."""
    cuda = device.type == "cuda"
    with torch.random.fork_rng([device] if cuda else []):
        seed_generators(seed, device)
        yield


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the CPU's generator and the device's; torch.manual_seed would reach all others too."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
