"""Error rates: how often a model's most likely token is not the one asked for.

    token      the share of scored tokens that are wrong
    sequence   the share of sequences in which any scored token is wrong
    last       the share of sequences whose last scored token is wrong

The model sees the true tokens before each one it is asked for. A sequence free of errors is
nevertheless what greedy decoding would write: up to the first error, both see the same tokens.
"""

from collections.abc import Iterable

import torch
from torch import nn

from milepost.tasks.task import IGNORE, Batch
from milepost.training.device import randomness_of
from milepost.training.distributed import ALONE, Processes


@torch.inference_mode()
def error_rates(
    model: nn.Module,
    batches: Iterable[Batch],
    device: torch.device,
    processes: Processes = ALONE,
) -> dict[str, float]:
    """The three error rates on the batches, and how many sequences and tokens were scored.

    Several processes share the rows of each batch, and all get the rates of all of them. Neither
    the model's mode nor the state of the random generators is changed.
    """
    totals = torch.zeros(5, dtype=torch.int64, device=device)
    training = model.training
    model.eval()
    try:
        with randomness_of(0, device):
            for batch in map(processes.share, batches):
                targets = batch.targets.to(device)
                predicted = model(batch.inputs.to(device)).argmax(-1)
                asked = targets != IGNORE
                wrong = (predicted != targets) & asked
                column = torch.arange(targets.shape[1], device=device)
                last = (asked * column).argmax(1, keepdim=True)
                counts = (asked, asked.any(1), wrong, wrong.any(1), wrong.gather(1, last))
                totals += torch.stack([count.sum() for count in counts])
    finally:
        model.train(training)
    tokens, count, wrong_tokens, wrong_sequences, wrong_last = processes.total(totals).tolist()
    assert count > 0, "nothing was scored"
    return {
        "token": wrong_tokens / tokens,
        "sequence": wrong_sequences / count,
        "last": wrong_last / count,
        "sequences": count,
        "tokens": tokens,
    }
