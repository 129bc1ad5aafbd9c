"""`python -m milepost.bench.gpu` is `milepost bench gpu` where there is no tyro."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from milepost.bench.cases import SUBJECTS
from milepost.bench.gpu.command import Request, main
from milepost.bench.gpu.plan import PARTS, Options
from milepost.errors import UsageError

HELP = {
    "ops": ", ".join(SUBJECTS),
    "lengths": "tokens in a sequence",
    "head_dims": "of queries, keys and values",
    "dtype": "of queries, keys and values: bfloat16, float16 or float32",
    "parts": f"what of the run: {', '.join(PARTS)}",
    "seconds": "how long it may take",
    "rounds": "at most so many for each cell and direction",
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        "python -m milepost.bench.gpu",
        description="Measure the ops on this machine's GPU: check each first, then time it beside "
        "the others. Results are written after each step.",
    )
    for field in fields(Options):
        kind = {"seconds": float, "rounds": int}.get(field.name, str)
        shown = "all of them" if field.default is None else field.default
        found.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=kind,
            default=field.default,
            help=f"{HELP[field.name]} (default: {shown})",
        )
    found.add_argument("--dry-run", action="store_true", help="print what would be done; no GPU")
    found.add_argument("--tune", action="store_true", help="find the kernels' blocks instead")
    found.add_argument("--out", type=Path, metavar="DIR", help="for the results; runs/bench")
    found.add_argument("--json", type=Path, metavar="FILE", help="the file for the results")
    found.add_argument("--resume", type=Path, metavar="FILE", help="go on with a file of results")
    return found


def run(words: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    given = vars(parser().parse_args(words))
    options = Options(**{field.name: given.pop(field.name) for field in fields(Options)})
    try:
        return main(Request(options=options, **given))
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(run())
