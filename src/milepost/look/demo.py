"""Two small models to look at: CoPE on flip-flop, and on text.

The flip-flop model has positions up to 2 alone. That is too few to find the last `w` by counting
tokens, so that its heads come to count what the CoPE paper has in mind (Golovneva et al. 2024,
arXiv 2405.18719, section 5.1): what is written, and not the bits to be ignored. With the recipe's
31 that is one way to solve the task among others (docs/look.md).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from milepost.training import checkpoint, recipes, rundir
from milepost.training.loop import train
from milepost.training.session import Progress
from milepost.training.settings import Settings

FOLDER = Path("runs/look")


def runs() -> dict[Path, Settings]:
    """The folders of the demo's runs, with their settings."""
    flip_flop: dict[str, Any] = {"seed": 2, "encoding_options": {"p_max": 2}}
    return {
        FOLDER / "flip-flop-cope": recipes.settings("flip-flop", "mini", "cope", **flip_flop),
        FOLDER / "text-cope": recipes.settings("text", "mini", "cope"),
    }


def missing(found: dict[Path, Settings]) -> Iterator[Path]:
    """The folders of those that are not trained to their end, or hold something else."""
    for folder, settings in found.items():
        path = folder / rundir.CHECKPOINT
        content = checkpoint.load(path) if path.exists() else None
        if (
            content is None
            or content["settings"] != settings
            or content["counters"]["step"] < settings.steps
        ):
            yield folder


def make(
    folder: Path,
    settings: Settings,
    progress: Callable[[Progress], None],
    device: str | None = None,
) -> bool:
    """Train one of them, or go on with it; whether it came to its end.

    Raises:
        UsageError: the folder cannot be written, or holds a run of other settings.
    """
    resume = (folder / rundir.CHECKPOINT).exists()
    return not train(settings, folder, resume=resume, progress=progress, device=device).stopped
