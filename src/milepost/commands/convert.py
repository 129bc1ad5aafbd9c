"""`milepost convert`: a run as a Hugging Face folder, and back."""

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated

import tyro

from milepost.errors import UsageError


@dataclass(frozen=True)
class Arguments:
    """Turn a run of `milepost train` into a Hugging Face folder, or such a folder back into a run.

    Which of the two follows from what DIR is. Both ways the weights and the settings stay as they
    are. A run that comes back can be tested, and not resumed: the optimizer's state is not kept.
    """

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """The run's folder, or the Hugging Face folder."""
    out: Path
    """A folder that is not there yet."""


def run(arguments: Arguments) -> int:
    """Convert, and say what can be done with the result."""
    convert = converter()
    folder, out = arguments.directory, arguments.out
    if convert.kind(folder) == "run":
        convert.to_huggingface(folder, out)
        print(f"{out}: a Hugging Face folder")
        print(f"write with it: milepost generate {out} --prompt TEXT")
    else:
        convert.to_run(folder, out)
        print(f"{out}: a run, which can be tested but not resumed")
        print(f"test it: milepost evaluate {out}")
    return 0


def converter() -> ModuleType:
    """`milepost.hf.convert`, or a `UsageError` where transformers is not installed."""
    try:
        import milepost.hf.convert
    except ImportError as error:
        if error.name not in ("transformers", "tokenizers"):
            raise
        raise UsageError(str(error)) from error
    from transformers.utils import logging

    # bars for what takes a moment, between the lines that are ours
    logging.disable_progress_bar()
    return milepost.hf.convert
