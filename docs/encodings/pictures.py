"""The pictures of these pages: for every encoding, one head of a small model and one sequence.

    make pictures

Each model is trained as the recipe flip-flop/mini says, with seed 0, on one CPU core: a quarter of
a minute, for `cope-mlp` two and a half. A run that is there is used again, and the same runs give
the same bytes.

What a read asks for is the bit after the last w, and the bit after every r since then is the same.
The head that is drawn gives these bits the most weight, on average over the reads of the first
`SEQUENCES` test sequences. The sequence that is drawn is the first of them with three writes and
three reads.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
import tyro
from torch import Tensor

from milepost import encoding
from milepost.evaluate import load_run
from milepost.look import Trace, at_length, read, trace
from milepost.look.shown import Shown, shown
from milepost.look.subject import of_task
from milepost.report import heads
from milepost.tasks.flip_flop import READ, WRITE
from milepost.training import recipes, rundir
from milepost.training.loop import train

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs/images/encodings"
RUNS = ROOT / "runs/pictures"
TOKENS = 24
SEQUENCES = 16


def main(names: tuple[str, ...] = (), runs: Path = RUNS) -> None:
    """Train what is not trained yet, and draw the pictures of these encodings, or of all.

    Args:
        names: of encodings.
        runs: a folder with a run for each of them.
    """
    torch.set_num_threads(1)
    for name in names or encoding.names():
        run = runs / name
        resume = (run / rundir.CHECKPOINT).exists()
        settings = recipes.settings("flip-flop", "mini", name, seed=0)
        if train(settings, run, resume=resume, device="cpu").stopped:
            break
        wrong = rundir.read_metrics(run)[-1]["errors"]["token"]
        print(f"{name}: {draw(name, run)}, {100 * wrong:.1f}% of the reads are wrong")


def draw(name: str, run: Path) -> str:
    """Write the picture of a run; what is drawn, in words."""
    model, _, task = load_run(run, device="cpu")
    rows = list(read(at_length(task, TOKENS), SEQUENCES))
    traces = [trace(model, row) for row in rows]
    weight = {
        (layer, head): sum(found) / len(found)
        for layer in range(len(traces[0].layers))
        for head in range(len(traces[0].layers[layer].output))
        for found in [[w for seen in traces for w in answering(seen, layer, head)]]
    }
    layer, head = max(weight, key=weight.__getitem__)
    tokens = next(row for row in rows if min((row == WRITE).sum(), (row == READ).sum()) >= 3)
    subject = of_task(f"{name}, flip-flop", model, task, tokens)
    arrays = panels(shown(subject.trace)[layer])
    heads.save(IMAGES / f"{name}.svg", subject, arrays, layer, head)
    return f"layer {layer}, head {head} with {weight[layer, head]:.2f} of its weight"


def answering(seen: Trace, layer: int, head: int) -> Iterator[float]:
    """For every read what the head gives, in all, to the bits that answer it."""
    weights = seen.layers[layer].weights[head]
    for query, keys in answers(seen.tokens):
        yield float(weights[query, keys].sum())


def answers(tokens: Tensor) -> Iterator[tuple[int, list[int]]]:
    """Where each read stands, and where the bits stand that answer it."""
    bits: list[int] = []
    for place, token in enumerate(tokens.tolist()):
        if token == WRITE:
            bits = []
        elif token == READ:
            yield place, list(bits)
        if token in (WRITE, READ):
            bits.append(place + 1)


def panels(arrays: dict[str, Shown]) -> Sequence[str]:
    """Gates and positions, or what position alone does, and attention; no plain distance."""
    first = ["gates"] if "gates" in arrays else ["alone"] if "alone" in arrays else []
    if "positions" in arrays and arrays["positions"].unit != "tokens":
        first.append("positions")
    return [*first, "attention"]


if __name__ == "__main__":
    tyro.cli(main)
