"""What a cell of a study of context extension does in its process: train, measure, write it down.

A run that was stopped goes on from its checkpoint as if it had not been.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from milepost.errors import UsageError
from milepost.files import write_json
from milepost.perplexity import perplexity
from milepost.study.extension.data import Data, fingerprint_of
from milepost.study.extension.models import (
    extended,
    fingerprint,
    fresh_base,
    read_base,
    trained_in,
)
from milepost.study.work import CHECKPOINT_SECONDS, Report, made, result_file, run_folder
from milepost.tasks import passkey
from milepost.training.checkpoint import save_tensors

if TYPE_CHECKING:
    from milepost.study.extension.cell import ExtensionCell

CHECKPOINT = "checkpoint.pt"
HISTORY = 20
"""A finished cell keeps the loss of so many steps."""


def loss_of(model: nn.Module, windows: Tensor, prompts: Tensor) -> tuple[Tensor, dict[str, float]]:
    """Nats of a byte of text, plus those of a prompt's, plus twice those of the digits to be found.

    These are the key where it is said again, and the answer. Without a weight of their own they
    would be 10 bytes among hundreds that the model soon knows by heart.
    """
    rows = torch.cat((windows, prompts))
    logits = model(input_ids=rows[:, :-1], use_cache=False).logits.float()
    split = len(windows)
    nats = cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
    nats = nats.view(len(rows), -1)
    said = nats[:split].mean()
    if not len(prompts):
        return said, {"text": said.item()}
    to_be_said = rows[split:, 1:]
    digit = (to_be_said >= ord("0")) & (to_be_said <= ord("9"))
    so_far = digit.cumsum(-1)
    digits = nats[split:][digit & (so_far > passkey.DIGITS)].mean()
    answer = nats[split:][digit & (so_far > 2 * passkey.DIGITS)].mean().item()
    return said + nats[split:].mean() + 2 * digits, {"text": said.item(), "passkey": answer}


@dataclass(frozen=True)
class Schedule:
    """A training: its steps, learning rate, warm-up, weight decay, length and stream of data."""

    steps: int
    lr: float
    warmup: int
    weight_decay: float
    length: int
    stream: str
    decays: bool

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        rising = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        falling = min(1.0, 3 * (1 - step / self.steps)) if self.decays else 1.0
        return self.lr * min(rising, falling)


class Run:
    """The work of a cell in its own process."""

    def __init__(
        self,
        cell: ExtensionCell,
        directory: Path,
        device: torch.device,
        report: Callable[[Report], None],
        stop: Callable[[], bool],
    ) -> None:
        self.cell = cell
        self.settings = cell.settings
        self.directory = directory
        self.device = device
        self.report = report
        self.stop = stop
        self.data = Data(cell.settings, directory)
        self.share = cell.training_cost / cell.cost
        self.resumed_at = 0.0
        self.history: list[dict[str, float]] = []

    def __call__(self) -> None:
        began = time.monotonic()
        trained: dict[str, Any] = {"parameters": {}, "model": 0}
        folder = self.cell.base_folder(self.directory)
        s = self.settings
        if not self.cell.is_base:
            base = read_base(folder, s)
            length = int(s.length or base.config.max_position_embeddings)
            model = extended(base, self.cell.row, s, self.cell.seed).to(self.device)
            trained = trained_in(model)
            plan = Schedule(
                s.steps,
                s.lr * self.cell.row.lr_factor,
                s.warmup,
                s.weight_decay,
                length * s.factor,
                "extend",
                decays=False,
            )
            if not self.train(model, plan):
                return
        elif s.checkpoint is None and not folder.exists():
            assert s.length is not None
            model = fresh_base(s, self.cell.seed).to(self.device)
            plan = Schedule(
                s.base_steps,
                s.base_lr,
                s.base_warmup,
                s.base_weight_decay,
                s.length,
                "base",
                decays=True,
            )
            if not self.train(model, plan):
                return
            self.keep(model, folder)
            trained = trained_in(model)
        else:
            model = read_base(folder, s).to(self.device)
            trained = {**trained_in(model), "parameters": {}} if s.checkpoint else trained_in(model)
        model.eval()
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        length = s.length or self.trained_length(folder)
        measured = self.measure(model, length)
        if measured is None:
            return
        write_json(
            result_file(self.cell, self.directory),
            {
                **self.cell.describe(),
                "length": length,
                "trained": trained,
                "base": fingerprint(folder),
                "text": fingerprint_of(self.data.test),
                **measured,
                "history": self.history,
                "seconds": round(time.monotonic() - began, 1),
                **made(self.device.type, **packages()),
            },
        )

    def trained_length(self, folder: Path) -> int:
        """T, as the checkpoint's configuration has it."""
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        return int(config.max_position_embeddings)

    def keep(self, model: Any, folder: Path) -> None:
        """Write the base where the rows find it."""
        from milepost.hf.folders import written_whole

        folder.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(folder) as partial:
            model.save_pretrained(partial)

    def train(self, model: nn.Module, plan: Schedule) -> bool:
        """Train what is trainable; whether it came to its end."""
        s = self.settings
        parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        # weights that are trained stay in fp32: 2e-5 would vanish in bf16's rounding
        for parameter in parameters.values():
            parameter.data = parameter.data.float()
        optimizer = torch.optim.AdamW(
            parameters.values(), lr=0.0, betas=(0.9, s.beta2), weight_decay=plan.weight_decay
        )
        path = run_folder(self.cell, self.directory) / CHECKPOINT
        step = self.resume(path, parameters, optimizer)
        self.resumed_at = self.share * step / plan.steps
        every = max(1, plan.steps // HISTORY)
        saved = time.monotonic()
        model.train()
        if s.checkpoint is not None:  # else 8192 tokens of a large model need more than a GPU has
            cast(Any, model).activation_checkpointing_enable({"use_reentrant": False})
        while step < plan.steps:
            for group in optimizer.param_groups:
                group["lr"] = plan.rate(step)
            sums: dict[str, float] = {}
            for part in range(s.accumulate):
                batch = self.data.batch(
                    self.cell.seed,
                    plan.stream,
                    step * s.accumulate + part,
                    plan.length,
                    s.factor if self.cell.is_base else 1,
                )
                windows, prompts = (rows.to(self.device) for rows in batch)
                with self.precision():
                    loss, parts = loss_of(model, windows, prompts)
                torch.autograd.backward(loss / s.accumulate)
                for name, value in parts.items():
                    sums[name] = sums.get(name, 0.0) + value / s.accumulate
            norm = nn.utils.clip_grad_norm_(parameters.values(), s.clip)
            if not math.isfinite(norm.item()):
                raise UsageError(
                    f"lr must let the loss stay finite, got {plan.lr} and a gradient that is not "
                    f"a number at step {step + 1}: lower it, or train in fp32"
                )
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % every == 0:
                self.history.append({"step": step, **{k: round(v, 5) for k, v in sums.items()}})
            doing = f"step {step} of {plan.steps}, " + ", ".join(
                f"{name} {value:.3f}" for name, value in sums.items()
            )
            self.report(Report(self.share * step / plan.steps, doing, self.resumed_at))
            if self.stop() or time.monotonic() - saved > CHECKPOINT_SECONDS:
                self.checkpoint(path, parameters, optimizer, step)
                saved = time.monotonic()
                if self.stop():
                    return False
        return True

    def precision(self) -> torch.autocast:
        """The model's arithmetic: weights that are trained are in fp32 also with bf16."""
        enabled = self.settings.precision == "bf16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=enabled)

    def checkpoint(
        self,
        path: Path,
        parameters: Mapping[str, nn.Parameter],
        optimizer: torch.optim.Optimizer,
        step: int,
    ) -> None:
        """Write what a resumed cell needs."""
        save_tensors(
            path,
            {
                "cell": self.cell.hash,
                "step": step,
                "parameters": {name: p.detach() for name, p in parameters.items()},
                "optimizer": optimizer.state_dict(),
                "history": self.history,
            },
        )

    def resume(
        self,
        path: Path,
        parameters: Mapping[str, nn.Parameter],
        optimizer: torch.optim.Optimizer,
    ) -> int:
        """Go on from a checkpoint if there is one that can be read; the steps done."""
        if not path.exists():
            return 0
        try:
            found = torch.load(path, map_location=self.device, weights_only=True)
            if found["cell"] != self.cell.hash or set(found["parameters"]) != set(parameters):
                raise ValueError("it is another cell's")
        except Exception as error:  # torch raises anything at all for a damaged file
            print(f"starting over: {path} cannot be read ({error})", flush=True)
            return 0
        for name, parameter in parameters.items():
            parameter.data.copy_(found["parameters"][name])
        optimizer.load_state_dict(found["optimizer"])
        self.history = found["history"]
        return int(found["step"])

    def measure(self, model: nn.Module, length: int) -> dict[str, Any] | None:
        """Perplexity by window and passkeys by length and depth; None if it was stopped."""
        s = self.settings
        share = self.share
        test_share = (1 - share) / 2
        tokens = self.data.test.to(self.device)
        said = {}

        def logits(rows: Tensor) -> Tensor:
            with self.precision():
                return model(input_ids=rows, use_cache=False).logits

        windows = [length // 4, length // 2, length, length * s.factor]
        for window in windows:
            if self.stop():
                return None
            self.report(Report(share, f"perplexity of {window} tokens", self.resumed_at))
            batch = max(1, 4096 // window)
            found = perplexity(logits, tokens, window=window, batch=batch)
            said[str(window)] = {
                "nats": found.nats,
                "perplexity": found.perplexity if found.nats < 700 else None,
                "tokens": found.tokens,
            }
            share += test_share / len(windows)
        asked: dict[str, dict[str, list[int]]] = {}
        for trial in self.data.trials:
            if self.stop():
                return None
            total = trial.length + s.answer
            self.report(Report(share, f"passkeys in {total} tokens", self.resumed_at))
            with self.precision():
                found_now = passkey.score(
                    [trial],
                    cached_greedy(model),
                    encode=self.data.tokens.encode,
                    decode=self.data.tokens.decode,
                    count=s.answer,
                    device=self.device,
                )
            (((_, depth), one),) = found_now.items()
            right = asked.setdefault(str(total), {}).setdefault(str(depth), [0, 0])
            right[0] += one.right
            right[1] += one.trials
            share += test_share / len(self.data.trials)
        return {"perplexity": said, "passkey": asked}


def cached_greedy(model: nn.Module) -> passkey.Generate:
    """The likeliest token again and again, the text before it being kept in a cache."""

    @torch.inference_mode()
    def generate(tokens: Tensor, count: int) -> Tensor:
        found = model(input_ids=tokens, use_cache=True)
        new = [found.logits[:, -1:].argmax(-1)]
        while len(new) < count:
            found = model(input_ids=new[-1], past_key_values=found.past_key_values, use_cache=True)
            new.append(found.logits[:, -1:].argmax(-1))
        return torch.cat(new, dim=1)

    return generate


def packages() -> dict[str, str]:
    """The versions of what is used beside torch."""
    import peft
    import transformers

    return {"transformers": transformers.__version__, "peft": peft.__version__}
