"""One step: the gradient of the mean cross entropy, and the optimizer's update.

The mean is over all scored tokens of the step, however many micro-batches they come in and
however many processes share their rows: so all compute what one process would with one batch.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from milepost.tasks.task import IGNORE, Batch, Task
from milepost.training.data import TrainingData
from milepost.training.distributed import ALONE, Processes, whole
from milepost.training.schedule import learning_rate
from milepost.training.settings import Settings

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


@dataclass(frozen=True)
class Step:
    """What a step did.

    Attributes:
        batches: the micro-batches.
        loss: the mean cross entropy, in nats.
        lr: the learning rate.
        grad_norm: the norm of the gradient before clipping.
    """

    batches: list[Batch]
    loss: float
    lr: float
    grad_norm: float

    @property
    def finite(self) -> bool:
        """Whether the update was made."""
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)

    @property
    def tokens(self) -> int:
        """How many tokens the model read."""
        return sum(batch.inputs.numel() for batch in self.batches)


class Stepper:
    """A model in training: its data, its optimizer, and how a step is taken."""

    def __init__(
        self,
        settings: Settings,
        task: Task,
        model: nn.Module,
        device: torch.device,
        processes: Processes = ALONE,
    ) -> None:
        self.settings = settings
        self.device = device
        self.processes = processes
        self.model = model
        self.call = torch.compile(model) if settings.compile else model
        self.data = TrainingData(settings, task)
        self.upcoming: tuple[int, list[Batch]] | None = None
        self.optimizer = OPTIMIZERS[settings.optimizer](
            model.parameters(),
            lr=settings.lr,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
            fused=device.type in ("cpu", "cuda"),
        )

    def take(self, step: int) -> Step:
        """Take the step that is the `step`-th from 0.

        If its loss or gradient is not finite, neither the model nor the optimizer changes.
        """
        batches = self._batches(step)
        scored = sum(int((batch.targets != IGNORE).sum()) for batch in batches)
        self.optimizer.zero_grad()
        shares = []
        for batch in map(self.processes.share, batches):
            share = self._cross_entropy(batch.inputs, batch.targets) / scored
            # of several processes' gradients FSDP takes the mean, and the sum is asked for
            whole_share = share * self.processes.count
            whole_share.backward()  # type: ignore[no-untyped-call]  # torch has no annotation
            shares.append(share.detach())
        largest = math.inf if self.settings.clip is None else self.settings.clip
        norm = whole(nn.utils.clip_grad_norm_(self.model.parameters(), largest))
        if step + 1 < self.settings.steps:
            # a GPU is still computing, and need not wait for this afterwards
            self.upcoming = step + 1, self.data(step + 1)
        lr = learning_rate(self.settings, step)
        total = self.processes.total(torch.stack(shares).sum())
        loss, grad_norm = torch.stack([total, norm]).tolist()
        taken = Step(batches, loss, lr, grad_norm)
        if taken.finite:
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            self.optimizer.step()
        return taken

    def _batches(self, step: int) -> list[Batch]:
        if self.upcoming is not None and self.upcoming[0] == step:
            return self.upcoming[1]
        return self.data(step)

    def _cross_entropy(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The sum over the scored targets."""
        bf16 = self.settings.precision == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
            logits = self.call(inputs.to(self.device))
        at_least_fp32 = torch.promote_types(logits.dtype, torch.float32)
        return cross_entropy(
            logits.flatten(0, 1).to(at_least_fp32),
            targets.to(self.device).flatten(),
            ignore_index=IGNORE,
            reduction="sum",
        )
