"""Two processes train what one does: same losses, same weights, one checkpoint for either."""

import errno
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.multiprocessing import spawn

from milepost import encoding, tasks
from milepost.encoding import Host
from milepost.errors import UsageError
from milepost.evaluate import evaluate_run, load_run
from milepost.tasks.task import Batch
from milepost.training import checkpoint, shards
from milepost.training.distributed import (
    ALONE,
    Processes,
    check_batch,
    leads,
    place,
    shard,
    together,
    whole,
)
from milepost.training.loop import build_model, train
from milepost.training.rundir import clear_shards, read_metrics
from milepost.training.settings import Settings
from milepost.training.step import Stepper

CPU = torch.device("cpu")

TINY = {"dim": 8, "layers": 2, "heads": 2}
UNTIED = {**TINY, "tied": False, "mlp": "swiglu", "norm": "rms"}

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("rope", {}, UNTIED),
    ("cope", {}, TINY),
    ("cope", {"shared": True}, TINY),
    ("fox", {}, TINY),
    ("tape", {}, TINY),
    ("fire", {}, TINY),
]
NAMES = [name + "-shared" * bool(options) for name, options, _ in CASES]


def make(**changes: Any) -> Settings:
    values: dict[str, Any] = {
        "task": "flip-flop",
        "task_settings": {"length": 12},
        "encoding": "cope",
        "model": TINY,
        "steps": 12,
        # no two shares are equal
        "batch": 5,
        "lr": 3e-3,
        "weight_decay": 0.1,
        "clip": 0.5,
        "schedule": "constant",
        "evaluate_every": 4,
        "evaluate_sequences": 65,
    }
    return Settings(**{**values, **changes})


DROPOUT = {"model": {**TINY, "dropout": 0.1}, "steps": 6, "evaluate_every": 0}


def steps(case: int, processes: Processes) -> dict[str, Any]:
    """What 20 steps do, in fp64, where two processes cannot be told from one by rounding."""
    name, options, model = CASES[case]
    settings = make(
        encoding=name, encoding_options=options, model=model, accumulate=1 + (case == 0)
    )
    task = tasks.build(settings.task, **settings.task_settings)
    torch.manual_seed(0)
    decoder = build_model(settings, task).double()
    shard(decoder, processes, CPU)
    stepper = Stepper(settings, task, decoder, CPU, processes)
    taken = [stepper.take(step) for step in range(20)]
    return {
        "loss": [step.loss for step in taken],
        "grad_norm": [step.grad_norm for step in taken],
        "tokens": [step.tokens for step in taken],
        "model": {name: whole(value).clone() for name, value in decoder.state_dict().items()},
    }


def refusal(action: Callable[[], object]) -> str:
    """What an action is refused with."""
    try:
        action()
    except UsageError as error:
        return str(error)
    return "not refused"


class Stop:
    """A request to stop in one process after so many steps, by a signal or by an answer."""

    def __init__(self, here: bool, after: int, by_signal: bool = False) -> None:
        self.here, self.left, self.by_signal = here, after, by_signal

    def __call__(self) -> bool:
        self.left -= 1
        if self.here and self.left < 0 and self.by_signal:
            signal.raise_signal(signal.SIGTERM)
        return self.here and self.left < 0 and not self.by_signal


def work(rank: int, folder: str) -> None:
    """All that the tests ask of two processes, whose start takes longer than any of it."""
    torch.set_num_threads(1)
    run = Path(folder)
    store = distributed.FileStore(f"{folder}/store", 2)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    found: dict[str, Any] = {}
    with together(CPU) as processes:
        found["processes"] = (processes.count, processes.rank)
        for case, name in enumerate(NAMES):
            found[name] = steps(case, processes)

        def fail() -> None:
            if rank == 1:
                raise UsageError("the second has no disk")

        found["agree"] = refusal(lambda: processes.agree(fail))
        found["lead"] = refusal(lambda: processes.lead(fail))

    found["batch"] = refusal(lambda: train(make(batch=1), run / "refused"))
    seen: list[int] = []
    outcome = train(
        make(),
        run / "two-then-one",
        stop=Stop(rank == 1, 7),
        progress=lambda progress: seen.append(progress.step),
    )
    found["stopped"] = (outcome.stopped, outcome.step, seen)
    train(make(), run / "one-then-two", resume=True)

    train(make(**DROPOUT), run / "whole", checkpoint_every=0)
    outcome = train(make(**DROPOUT), run / "parts", stop=Stop(rank == 0, 2, by_signal=True))
    found["signalled"] = (outcome.stopped, outcome.step)
    train(make(**DROPOUT), run / "parts", resume=True)
    found["existing"] = refusal(lambda: train(make(**DROPOUT), run / "parts"))
    found["other"] = refusal(lambda: train(make(), run / "parts", resume=True))

    honest = os.fsync

    def full(descriptor: int) -> None:
        if os.path.realpath(f"/proc/self/fd/{descriptor}").endswith(".distcp"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        honest(descriptor)

    def fill_up() -> bool:
        if rank == 1:
            os.fsync = full
        return False

    stop = Stop(rank == 0, 2)
    found["full"] = refusal(
        lambda: (
            train(make(**DROPOUT), run / "full", stop=stop),
            train(make(**DROPOUT), run / "full", resume=True, stop=fill_up, checkpoint_every=0),
        )
    )
    os.fsync = honest
    torch.save(found, run / f"found-{rank}")
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes have done their work."""
    if not distributed.is_gloo_available():
        pytest.skip("PyTorch was built without gloo")
    path = tmp_path_factory.mktemp("distributed")
    train(make(), path / "one-then-two", stop=Stop(True, 5))
    spawn(work, args=(str(path),), nprocs=2)
    return path


@pytest.fixture(scope="module")
def found(folder: Path) -> list[dict[str, Any]]:
    return [torch.load(folder / f"found-{rank}") for rank in range(2)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that one process never interrupted."""
    path = tmp_path_factory.mktemp("alone") / "run"
    train(make(), path)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_take_the_steps_of_one(name: str, found: list[dict[str, Any]]) -> None:
    expected = steps(NAMES.index(name), ALONE)
    assert min(expected["grad_norm"]) > 0.5, "nothing was clipped"
    assert expected["loss"][-1] < expected["loss"][0]
    for ours in (each[name] for each in found):
        assert ours["tokens"] == expected["tokens"]
        assert ours["loss"] == pytest.approx(expected["loss"], rel=1e-10)
        assert ours["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-9)
        assert ours["model"].keys() == expected["model"].keys()
        for key, value in expected["model"].items():
            torch.testing.assert_close(ours["model"][key], value, rtol=1e-8, atol=1e-10, msg=key)


def same_run(run: Path, alone: Path) -> None:
    """The run is the other one, but for the rounding of fp32."""
    ours, theirs = read_metrics(run), read_metrics(alone)
    assert [line["step"] for line in ours] == list(range(1, 13))
    assert [line["loss"] for line in ours] == pytest.approx([s["loss"] for s in theirs], abs=1e-6)
    for key in ("tokens", "lr", "skipped"):
        assert [line[key] for line in ours] == [line[key] for line in theirs]
    assert [s.get("errors") for s in ours] == [s.get("errors") for s in theirs]
    mine, other = (checkpoint.load(path / "checkpoint.pt") for path in (run, alone))
    for name, value in other["model"].items():
        torch.testing.assert_close(mine["model"][name], value, rtol=1e-3, atol=1e-5, msg=name)


def test_a_run_of_one_process_goes_on_in_two(folder: Path, alone: Path) -> None:
    same_run(folder / "one-then-two", alone)
    assert (folder / "one-then-two" / "shards-12").is_dir()


def test_a_run_of_two_processes_goes_on_in_one(folder: Path, alone: Path) -> None:
    run = folder / "two-then-one"
    assert (run / "shards-7").is_dir()
    assert not train(make(), run, resume=True).stopped
    same_run(run, alone)
    # the file is all there is again
    assert not list(run.glob("shards-*"))
    assert checkpoint.load_file(run / "checkpoint.pt")["format"] == checkpoint.FORMAT


def test_one_process_stops_both(found: list[dict[str, Any]]) -> None:
    # the first alone tells of its progress
    assert found[0]["stopped"] == (True, 7, [1, 2, 3, 4, 5, 6, 7])
    assert found[1]["stopped"] == (True, 7, [])
    # the signal is heard when the third step is already decided on
    assert [each["signalled"] for each in found] == [(True, 3)] * 2


def test_with_dropout_two_processes_go_on_as_if_never_stopped(folder: Path) -> None:
    parts, uncut = folder / "parts", folder / "whole"
    assert [line["loss"] for line in read_metrics(parts)] == [
        line["loss"] for line in read_metrics(uncut)
    ]
    ours, theirs = (checkpoint.load(run / "checkpoint.pt") for run in (parts, uncut))
    for name, value in theirs["model"].items():
        assert torch.equal(ours["model"][name], value), name
    # the rows of the two processes are dropped from independently
    assert not torch.equal(theirs["generators"]["cpu"], theirs["other_generators"][0]["cpu"])
    # a checkpoint at every step, and only the last is left
    assert [path.name for path in uncut.glob("shards-*")] == ["shards-6"]


def test_the_error_of_one_process_is_everyone_s(found: list[dict[str, Any]]) -> None:
    for rank, each in enumerate(found):
        assert each["processes"] == (2, rank)
        assert each["agree"] == "the second has no disk"
        assert each["lead"] == "not refused"
        assert each["batch"].startswith("batch must have a row for each of 2 processes, got 1")
        assert "already holds checkpoint.pt: pass --resume" in each["existing"]
        assert "is of other settings" in each["other"]


def test_a_disk_that_fills_up_leaves_the_checkpoint_before(
    folder: Path, found: list[dict[str, Any]]
) -> None:
    for each in found:
        assert "shards-3: No space left on device; free some space" in each["full"]
    run = folder / "full"
    assert [path.name for path in run.glob("shards-*")] == ["shards-2"]
    assert checkpoint.load(run / "checkpoint.pt")["counters"]["step"] == 2


def test_a_run_of_two_processes_is_tested_like_any_other(folder: Path, alone: Path) -> None:
    ours, theirs = (
        evaluate_run(run, ["in"], sequences=32, device="cpu")
        for run in (folder / "one-then-two", alone)
    )
    assert ours == theirs


@pytest.fixture
def sharded(folder: Path, tmp_path: Path) -> Path:
    """A copy of a run with shards, to be damaged."""
    return Path(shutil.copytree(folder / "whole", tmp_path / "run"))


def test_shards_that_are_damaged_or_missing(sharded: Path) -> None:
    load_run(sharded, "cpu")
    for path in sorted((sharded / "shards-6").iterdir()):
        before = path.read_bytes()
        flipped = bytearray(before)
        flipped[len(flipped) // 2] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(UsageError, match=rf"damaged \(wrong check sum of .*/{path.name}\)"):
            load_run(sharded, "cpu")
        path.unlink()
        with pytest.raises(UsageError, match=r"cannot read .*shards-6: No such file"):
            load_run(sharded, "cpu")
        path.write_bytes(before)
    load_run(sharded, "cpu")
    clear_shards(sharded)
    with pytest.raises(UsageError, match="cannot read"):
        train(make(**DROPOUT), sharded, resume=True)


def test_an_index_cannot_run_code(sharded: Path) -> None:
    class Harm:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(sharded / "harm"),)

    path = sharded / "shards-6" / ".metadata"
    path.write_bytes(pickle.dumps(Harm()))
    with pytest.raises(pickle.UnpicklingError, match=r"mkdir has no place in it"):
        shards.index(path.parent)
    with pytest.raises(UsageError, match="damaged"):
        load_run(sharded, "cpu")
    assert not (sharded / "harm").exists()


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("rows", [1, 5, 7, 64])
def test_every_row_is_someone_s(rows: int, count: int) -> None:
    batch = Batch(torch.arange(rows)[:, None].expand(rows, 4), torch.ones(rows, 4) > 0)
    shares = [Processes(count, rank).share(batch) for rank in range(count)]
    asked = [row for share in shares for row in share.tokens[share.scored.any(1)][:, 0].tolist()]
    assert asked == list(range(rows))
    # each has a row to read, as all of them compute together
    assert all(len(share.tokens) for share in shares)
    if count <= rows:
        assert max(len(s.tokens) for s in shares) - min(len(s.tokens) for s in shares) <= 1


def test_a_scalar_parameter_is_named() -> None:
    settings = make()
    model = build_model(settings, tasks.build(settings.task, **settings.task_settings))
    model.encodings[0].strength = torch.nn.Parameter(torch.tensor(1.0))
    shard(model, ALONE, CPU)
    with pytest.raises(UsageError, match=r"encodings\.0\.strength is a scalar.*shape \(1,\)"):
        shard(model, Processes(2), CPU)


def test_no_encoding_has_a_scalar_parameter() -> None:
    host = Host(dim=16, layers=2, heads=2, key_heads=2, head_dim=8, max_length=16)
    for name in encoding.names():
        for options in ({}, *encoding.find(name).variants):
            for module in encoding.build(name, host, options):
                scalars = [key for key, value in module.named_parameters() if value.ndim == 0]
                assert not scalars, (name, options)


def test_a_batch_may_be_uneven_but_not_too_small() -> None:
    check_batch(5, Processes(4))
    with pytest.raises(UsageError, match=r"each of 4 processes, got 3.*--nproc-per-node.*--batch"):
        check_batch(3, Processes(4))


def test_what_torchrun_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    # other launchers leave one of these alone
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert leads()
    with together(CPU) as processes:
        assert processes == ALONE
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert not leads()
    assert place("cpu") == CPU
    with pytest.raises(UsageError, match=r"'cuda' or 'cpu' where torchrun .* got 'cuda:1'"):
        place("cuda:1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UsageError, match="4 processes need as many GPUs, torch finds 2"):
        place("cuda")


def test_torchrun(tmp_path: Path) -> None:
    run = tmp_path / "run"
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = ["milepost", "train", "--task", "flip-flop", "--encoding", "cope", "--steps", "2"]
    tiny = ["--model", "dim=8", "layers=1", "--task-settings", "length=8", "--batch", "4"]
    rest = ["--evaluate-every", "0", "--device", "cpu", "--out", str(run)]
    done = subprocess.run(
        [*launch, "--standalone", "-m", *command, *tiny, *rest],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    # one process speaks
    assert done.stdout.count("2 steps in") == 1
    assert [line["step"] for line in read_metrics(run)] == [1, 2]
    assert checkpoint.load_file(run / "checkpoint.pt")["format"] == checkpoint.SHARDED
    load_run(run, "cpu")
