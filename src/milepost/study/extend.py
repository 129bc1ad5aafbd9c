"""One cell of a study of context extension: make the base or extend it, measure it, write it down.

The base of a seed is trained once and kept in the study's folder, `bases/<hash>`, as transformers
keeps models. Its row measures it as it is; the other rows read it from there. A batch is a pure
function of the seed and the step: all rows of a seed see the same data in the same order, and a
cell that was stopped goes on from its checkpoint as if it had not been.

A base that is trained here is a Llama on bytes, on text and passkey prompts side by side. No key
that is asked for in a measurement is in any of its prompts.
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from milepost import corpus, machine
from milepost.errors import UsageError
from milepost.files import write_json, write_whole
from milepost.perplexity import perplexity
from milepost.study.cell import CHECKPOINT_SECONDS, Report, result_file, run_folder
from milepost.study.extension import ARM, BASE, MEASURED, Row, Settings
from milepost.tasks import passkey, text
from milepost.tasks.task import keyed_generator
from milepost.training.checkpoint import save_tensors
from milepost.training.device import choose, randomness_of
from milepost.training.settings import digest

CHECKPOINT = "checkpoint.pt"
HISTORY = 20
"""A finished cell keeps the loss of so many steps."""

PASSKEY_SEED = 0
"""All models are asked for the same keys."""


@dataclass(frozen=True)
class Tokens:
    """How a study's text becomes tokens and back."""

    encode: Callable[[str], list[int]]
    decode: Callable[[Any], str]
    join: list[int] | None
    """Tokens between documents; None where documents are joined as bytes are."""


@dataclass(frozen=True)
class ExtensionCell:
    """The base of a seed, or one row of it."""

    row: Row
    settings: Settings
    seed: int

    arm = ARM
    result_names = MEASURED

    @property
    def encoding(self) -> str:
        """The name of its row, as study.json keeps it."""
        return self.row.name

    @property
    def label(self) -> str:
        return f"{self.row.name}, seed {self.seed}"

    @property
    def hash(self) -> str:
        """The name of the cell's files: a digest of everything that decides its numbers."""
        return digest(self.describe())

    def describe(self) -> dict[str, Any]:
        """Everything that decides its numbers."""
        row = {
            "name": self.row.name,
            "encoding": self.row.encoding,
            "encoding_options": dict(self.row.encoding_options),
            "rope": self.row.rope,
            "lora": self.row.lora,
            "lr_factor": self.row.lr_factor,
        }
        return {"row": row, "seed": self.seed, "settings": self.settings.to_dict()}

    @property
    def failure(self) -> dict[str, Any]:
        """What the file of a failed cell says of it."""
        return self.describe()

    @property
    def is_base(self) -> bool:
        return self.row.name == BASE

    @property
    def base(self) -> ExtensionCell:
        """The base that it extends."""
        row = Row(BASE, "the base as it is", rope="kept", lora=False)
        return ExtensionCell(row, self.settings, self.seed)

    @property
    def needs(self) -> ExtensionCell | None:
        """The cell that has to be finished before this one can begin."""
        return None if self.is_base else self.base

    def ready(self, directory: Path) -> bool:
        """Whether what other cells take from it is there, beside its result."""
        kept = not self.is_base or self.settings.checkpoint or base_folder(self, directory).exists()
        return bool(kept)

    @property
    def training_cost(self) -> float:
        """About how much arithmetic the training is, in tokens read."""
        s = self.settings
        if not self.is_base:
            length = (s.length or 1) * s.factor
            return 3.0 * s.steps * s.accumulate * (s.texts + s.passkeys) * length
        if s.checkpoint is not None:
            return 0.0
        return (
            3.0 * s.base_steps * s.accumulate * s.factor * (s.texts + s.passkeys) * (s.length or 1)
        )

    @property
    def test_cost(self) -> float:
        """The same of the measurements."""
        s = self.settings
        asked = sum(s.passkey_lengths) * len(s.depths) * s.trials
        # one at a time, which leaves a processor half idle
        return 4.0 * s.test_tokens + 10.0 * asked

    @property
    def cost(self) -> float:
        return self.training_cost + self.test_cost

    def run(
        self,
        directory: Path,
        *,
        report: Callable[[Report], None],
        stop: Callable[[], bool],
        device: str | None = None,
    ) -> None:
        """Make the model, measure it and write the result, or leave a checkpoint on `stop`."""
        Run(self, directory, choose(device), report, stop)()


def base_folder(cell: ExtensionCell, directory: Path) -> Path:
    """Where the base of the cell's seed is."""
    if cell.settings.checkpoint is not None:
        return Path(cell.settings.checkpoint)
    return directory / "bases" / cell.base.hash


class Data:
    """The text and the passkeys of a cell: what is trained on, and what is measured."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self.settings = settings
        self.directory = directory

    @cached_property
    def tokens(self) -> Tokens:
        """The checkpoint's own tokens, or bytes."""
        if self.settings.checkpoint is None:
            return Tokens(text.encode, text.decode, None)
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(self.settings.checkpoint, local_files_only=True)
        if tokenizer.eos_token_id is None:
            raise UsageError(
                f"checkpoint: expected a tokenizer with an eos_token, which goes between "
                f"documents, got {self.settings.checkpoint} without: add it to its "
                f"tokenizer_config.json"
            )
        return Tokens(
            lambda words: list(tokenizer(words)["input_ids"]),
            lambda ids: str(tokenizer.decode(list(map(int, ids)))),
            [int(tokenizer.eos_token_id)],
        )

    def split(self, name: str) -> Int64[np.ndarray, " N"]:
        """All tokens of a split, documents in the order of their names."""
        source, wanted = self.settings.corpus, name
        if name == corpus.TEST and self.settings.test_corpus is not None:
            source, wanted = self.settings.test_corpus, ""
        if not corpus.exists(source):
            raise UsageError(f"corpus {source!r} does not exist: give a path, or python-prose")
        if self.tokens.join is None and wanted:
            return corpus.load(source)[wanted].astype(np.int64)
        place = {"corpus": source, "split": wanted, "checkpoint": self.settings.checkpoint}
        path = self.directory / "tokens" / f"{digest(place)}.npy"
        if not path.exists():
            joined = self.joined(source, wanted)
            write_whole(path, lambda file: np.save(file, joined))
        found: Int64[np.ndarray, " N"] = np.load(path, mmap_mode="r")
        return found

    def joined(self, source: str, wanted: str) -> Int64[np.ndarray, " N"]:
        """The documents of a split, or of all splits, each followed by the end-of-text token."""
        between = self.tokens.join or list(corpus.SEPARATOR)
        pieces = [
            np.array([*self.tokens.encode(document.decode()), *between], dtype=np.int64)
            for split, documents in corpus.documents(source)
            if wanted in ("", split)
            for _, document in documents
            if document.strip()
        ]
        return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)

    @cached_property
    def train(self) -> Int64[np.ndarray, " N"]:
        return self.split(corpus.TRAIN)

    @cached_property
    def test(self) -> Tensor:
        """The text that perplexity is of: the beginning of the test documents."""
        found = self.split(corpus.TEST)[: self.settings.test_tokens + 1]
        if len(found) < 2:
            raise UsageError(
                f"corpus: expected test text, got {self.settings.corpus} without any: give more "
                f"documents (5 % are for testing), or --settings test_corpus=PATH"
            )
        return torch.from_numpy(np.array(found))

    @cached_property
    def trials(self) -> list[passkey.Trial]:
        """The passkeys that are asked for: of each length with room for the answer."""
        s = self.settings
        lengths = [length - s.answer for length in s.passkey_lengths]
        return passkey.trials(
            self.tokens.encode, lengths, depths=s.depths, count=s.trials, seed=PASSKEY_SEED
        )

    @cached_property
    def keys(self) -> Int64[np.ndarray, " K"]:
        """The keys to train on: all that no measurement asks for."""
        every = np.arange(passkey.FIRST_KEY, passkey.FIRST_KEY + passkey.KEYS)
        return np.setdiff1d(every, [int(trial.key) for trial in self.trials])

    def batch(
        self, seed: int, stream: str, step: int, length: int, times: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Windows of text and passkey prompts, `times` as many as the settings say."""
        s = self.settings
        rng = keyed_generator("context extension", seed, stream, step)
        if len(self.train) <= length:
            raise UsageError(
                f"corpus: expected more than {length} tokens to train on, got {len(self.train)} in "
                f"{s.corpus}: give more text"
            )
        starts = rng.integers(len(self.train) - length, size=times * s.texts)
        windows = self.train[starts[:, None] + np.arange(length + 1)]
        if not s.passkeys:
            return torch.from_numpy(windows), torch.empty(0, length + 1, dtype=torch.int64)
        most = length + 1 - passkey.FRAME
        if self.tokens.join is not None or most < 0:
            raise UsageError(
                f"setting 'passkeys' must be 0 with a checkpoint, and for a length below "
                f"{passkey.FRAME - 1} bytes, got {s.passkeys} at {length}: change it, or length"
            )
        keys = self.keys[rng.integers(len(self.keys), size=times * s.passkeys)]
        # Of all lengths, and line ends fill the row: with one length a model may learn which digit
        # comes at which place of the row, and be lost one byte further on.
        garbage = rng.integers(most + 1, size=times * s.passkeys)
        before = rng.integers(garbage + 1)
        prompts = [
            text.encode(
                f"{passkey.prompt(str(key), first, count - first)} {key}".ljust(length + 1, "\n")
            )
            for key, count, first in zip(
                keys.tolist(), garbage.tolist(), before.tolist(), strict=True
            )
        ]
        return torch.from_numpy(windows), torch.tensor(prompts)


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


def fresh_base(settings: Settings, seed: int) -> nn.Module:
    """A small Llama on bytes."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=256,
        hidden_size=settings.dim,
        intermediate_size=settings.dim * 8 // 3 // 8 * 8,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        max_position_embeddings=settings.length,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    with randomness_of(seed, torch.device("cpu")):
        return LlamaForCausalLM(config)


def read_base(folder: Path, settings: Settings) -> Any:
    """The base, from its folder."""
    from transformers import AutoModelForCausalLM

    if not (folder / "config.json").exists():
        raise UsageError(
            f"checkpoint: expected a folder that transformers reads, with config.json, got "
            f"{folder}: give the path of a downloaded model"
        )
    dtype = torch.bfloat16 if settings.precision == "bf16" else torch.float32
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)


def extended(model: Any, row: Row, settings: Settings, seed: int) -> nn.Module:
    """The base with what the row puts into it, what the row trains being trainable."""
    from milepost.hf import add_adapter, retrofit

    T = int(settings.length or model.config.max_position_embeddings)
    options = dict(row.encoding_options)
    rope = dict(model.config.rope_parameters or {})
    if row.rope.startswith("interpolated"):
        if rope.get("rope_type", "default") != "default":
            raise UsageError(
                f"checkpoint: expected RoPE that is not scaled yet, got rope_type = "
                f"{rope['rope_type']!r}: give a base model"
            )
        rope = {**rope, "rope_type": "linear", "factor": float(settings.factor)}
        if "theta" in row.rope:
            rope["rope_theta"] = settings.theta
        model.config.rope_parameters = rope
        model.config.name_or_path = ""  # it is not what is in that folder any more
        model.config.max_position_embeddings = settings.factor * T
    if row.rope == "by the encoding":
        options["factor"] = float(settings.factor)
    with randomness_of(seed, torch.device("cpu")):
        added = retrofit(model, row.encoding, encoding_options=options, probe=0)
        return add_adapter(
            added,
            lora_rank=settings.lora_rank if row.lora else None,
            lora_alpha=settings.lora_alpha if row.lora else None,
            train=whole(added),
        )


def whole(model: nn.Module) -> list[str]:
    """The modules that every row trains whole: the token embeddings, and each norm by its path."""
    return [
        path
        for path, module in model.named_modules()
        if path.endswith(".embed_tokens") or path.split(".")[-1].endswith("norm")
        if not path.startswith("model.encoding") and any(True for _ in module.parameters())
    ]


def trained_in(model: nn.Module) -> dict[str, Any]:
    """How many parameters of what are trained, and how many there are."""
    kinds = {"encoding": 0, "lora": 0, "embeddings": 0, "norms": 0, "host": 0}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            kind = (
                "encoding"
                if ".encoding." in name
                else "lora"
                if "lora_" in name
                else "embeddings"
                if "embed_tokens" in name
                else "norms"
                if "norm" in name
                else "host"
            )
            kinds[kind] += parameter.numel()
    return {
        "parameters": {kind: count for kind, count in kinds.items() if count},
        "model": sum(parameter.numel() for parameter in model.parameters()),
    }


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
        folder = base_folder(self.cell, self.directory)
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
                "versions": {**machine.versions(), **packages(), "commit": machine.commit()},
                "machine": {
                    "system": platform.system(),
                    "processor": machine.processor(),
                    "kernels": machine.kernels(),
                    "cores": os.cpu_count(),
                    "threads": torch.get_num_threads(),
                    "device": self.device.type,
                },
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


@lru_cache
def fingerprint(folder: Path) -> str:
    """A digest of a base's weights: results of one base have the same."""
    found = sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with open(path, "rb") as file:
            while block := file.read(2**24):
                found.update(block)
    return found.hexdigest()[:16]


def fingerprint_of(tokens: Tensor) -> str:
    """A digest of the test text."""
    return sha256(tokens.numpy().tobytes()).hexdigest()[:16]
