"""Over two processes with FSDP2: the loss and the gradients of one process."""

import os
from pathlib import Path

import pytest
import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing import spawn

from .tiny import make, tokens

CASES = [("cope", {}), ("cope", {"shared": True}), ("fox+rope", {}), ("tape", {}), ("t5", {})]


def gradients(model: torch.nn.Module, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    model(ids, labels=ids, use_cache=False).loss.backward()
    found = {}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        whole = getattr(parameter.grad, "full_tensor", lambda grad=parameter.grad: grad)
        found[name] = whole().clone()
    return found


def work(rank: int, folder: str) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    store = distributed.FileStore(f"{folder}/store", 2)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    torch.set_num_threads(1)
    for name, options in CASES:
        ids = tokens(2)
        expected = gradients(make("llama", name, options).float().train(), ids)
        model = make("llama", name, options).float().train()
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model)
        # each process has a row of its own, and gradients are the mean of theirs
        found = gradients(model, ids[rank : rank + 1])
        for key, gradient in expected.items():
            torch.testing.assert_close(found[key], gradient, rtol=1e-4, atol=1e-5, msg=key)
    distributed.destroy_process_group()


@pytest.mark.skipif(not distributed.is_gloo_available(), reason="PyTorch was built without gloo")
def test_two_processes_find_the_gradients_of_one(tmp_path: Path) -> None:
    spawn(work, args=(str(tmp_path),), nprocs=2)
