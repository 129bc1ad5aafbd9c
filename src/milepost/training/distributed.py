"""Several processes that train one model: FSDP2, and what it takes to be the run of one process.

Each of N processes keeps a share of every parameter, of its gradient and of the optimizer's state,
and gathers a block's parameters while the block computes (Zhao et al. 2023, arXiv 2304.11277). Of
every batch, which all of them draw, process r reads the rows from r B / N to (r + 1) B / N. With
ℓ_r the sum of the cross entropy over the scored tokens of its rows, and n the scored tokens of all,

    loss = Σ_r ℓ_r / n,     its gradient = mean_r ∇(N ℓ_r / n)

and that mean is what FSDP takes. So neither data nor gradient know how many processes there are.

`torchrun` starts the processes, on one machine or several, and tells each its number.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

from milepost.errors import UsageError
from milepost.model import Decoder
from milepost.tasks.task import Batch
from milepost.training.device import choose, seed_generators

TOLD = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
"""What `torchrun` says in the environment."""

# on a GPU the flags, which are not worth waiting for it, go by gloo all the same
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


@dataclass(frozen=True)
class Processes:
    """Those that train one model, as one of them sees them; by default it is alone.

    Attributes:
        count: how many there are.
        rank: which of them this is, from 0. The first leads: it writes and speaks for all.
    """

    count: int = 1
    rank: int = 0

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def share(self, batch: Batch) -> Batch:
        """The rows of this process; where there are fewer than processes, one that asks nothing."""
        rows = len(batch.tokens)
        first, end = (rows * rank // self.count for rank in (self.rank, self.rank + 1))
        if first == end:
            return Batch(batch.tokens[:1], torch.zeros_like(batch.scored[:1]))
        return Batch(batch.tokens[first:end], batch.scored[first:end])

    def total(self, numbers: Tensor) -> Tensor:
        """The sum of these over all processes, in place."""
        if self.count > 1:
            distributed.all_reduce(numbers)
        return numbers

    def any(self, flag: bool) -> bool:
        """Whether it is true in any process: so all do the same."""
        if self.count == 1:
            return flag
        flags = torch.tensor(int(flag))
        distributed.all_reduce(flags, distributed.ReduceOp.MAX)
        return bool(flags)

    def gather(self, value: Any) -> list[Any]:
        """The value of each process, in their order."""
        values = [value] * self.count
        if self.count > 1:
            distributed.all_gather_object(values, value)
        return values

    def agree(self, action: Callable[[], object]) -> None:
        """Do it in each process; the `UsageError` of one is everyone's, so that nobody waits."""
        if self.count == 1:
            action()
            return
        failure = None
        try:
            action()
        except UsageError as error:
            failure = str(error)
        for message in self.gather(failure):
            if message is not None:
                raise UsageError(message)

    def lead(self, action: Callable[[], object]) -> None:
        """Do it in the first process, and let the others wait for it."""
        self.agree(action if self.leads else lambda: None)


ALONE = Processes()


def leads() -> bool:
    """Whether `torchrun` did not start this process, or started it first."""
    return os.environ.get("RANK", "0") == "0" or not all(name in os.environ for name in TOLD)


def place(name: str | None) -> torch.device:
    """The device of this process: `choose`, but under `torchrun` each has a GPU of its own."""
    count = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if _told() else 1
    if count == 1:
        return choose(name)
    kind = choose(name).type if name is None else name
    if kind == "cpu":
        return choose("cpu")
    if kind != "cuda":
        raise UsageError(
            f"device must be 'cuda' or 'cpu' where torchrun starts several processes, got {name!r}:"
            " leave it out, and each takes the GPU of its number"
        )
    if count > torch.cuda.device_count():
        raise UsageError(
            f"{count} processes need as many GPUs, torch finds {torch.cuda.device_count()}: give "
            "torchrun a smaller --nproc-per-node, or --device cpu"
        )
    return choose(f"cuda:{os.environ['LOCAL_RANK']}")


def _told() -> bool:
    return all(name in os.environ for name in TOLD) and int(os.environ["WORLD_SIZE"]) > 1


@contextmanager
def together(device: torch.device) -> Iterator[Processes]:
    """Join the others that `torchrun` started, or a group that is there already."""
    joined = distributed.is_available() and distributed.is_initialized()
    if not joined and not _told():
        yield ALONE
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if not joined:
        distributed.init_process_group(BACKENDS[device.type])
    try:
        with warnings.catch_warnings():
            # the state that blocks hand on may be a view, and no encoding writes into it
            warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
            yield Processes(distributed.get_world_size(), distributed.get_rank())
    finally:
        if not joined:
            distributed.destroy_process_group()


def shard(model: Decoder, processes: Processes, device: torch.device) -> None:
    """Leave each process its share of the parameters; nothing if it is alone.

    Every block is gathered while it computes. What is in no block, the embeddings and the
    encodings, is gathered from the first block to the last: the blocks call an encoding's hooks,
    which FSDP does not see.

    Raises:
        UsageError: a parameter is a scalar, which has no rows to share out.
    """
    if processes.count == 1:
        return
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    for name, parameter in model.named_parameters():
        if parameter.ndim == 0:
            raise UsageError(
                f"parameter {name} is a scalar, which FSDP cannot share out among "
                f"{processes.count} processes: give it the shape (1,), or train in one process"
            )
    mesh = init_device_mesh(device.type, (processes.count,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def own_randomness(seed: int, processes: Processes, device: torch.device, *, step: int = 0) -> None:
    """Give every process but the first, which keeps its own, generators that no other has."""
    if not processes.leads:
        key = np.random.SeedSequence([seed, processes.rank, step])
        seed_generators(int(key.generate_state(1, np.uint64)[0]), device)


def whole(tensor: Tensor) -> Tensor:
    """The whole of a tensor of which each process may have a share; all must ask."""
    full: Callable[[], Tensor] = getattr(tensor, "full_tensor", lambda: tensor)
    return full()


def check_batch(batch: int, processes: Processes) -> None:
    """Raise a `UsageError` where some process would never have a row."""
    if batch < processes.count:
        raise UsageError(
            f"batch must have a row for each of {processes.count} processes, got {batch}: give "
            f"torchrun a smaller --nproc-per-node, or a larger --batch"
        )
