"""The tensors of a checkpoint in shards: a folder into which each process writes its own share.

The folder is one of `torch.distributed.checkpoint`, which any number of processes can read, in any
shares. It is found through `checkpoint.pt`, which names it, holds the check sum of each of its
files, and is written after them. So a folder without it is a leftover, and a new checkpoint is
there, whole, at the moment when `checkpoint.pt` takes its name.

Its index is a pickle. It is read with the names that an index needs and no others: like the rest
of a checkpoint it runs no code.
"""

import pickle
import shutil
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor, distribute_tensor

from milepost.files import cannot_write, force_to_disk
from milepost.training.distributed import ALONE, Processes

INDEX = ".metadata"

NAMES = {
    "collections": {"OrderedDict"},
    "pathlib": {"Path", "PosixPath", "PurePosixPath"},
    "pathlib._local": {"Path", "PosixPath", "PurePosixPath"},
    "torch": {"Size", "float64", "float32", "bfloat16", "float16", "int64", "int32", "uint8"},
    "torch.serialization": {"_get_layout"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
}
"""What the pickle of an index may name, by module."""

READ_AT_ONCE = 2**24


def write(folder: Path, tensors: Mapping[str, Tensor], processes: Processes) -> dict[str, int]:
    """Write the processes' shares of the tensors; the check sum of each file.

    Raises:
        UsageError: in all processes, if one could not write.
    """
    processes.lead(lambda: shutil.rmtree(folder, ignore_errors=True))
    try:
        save(dict(tensors), checkpoint_id=folder)
    except CheckpointException as error:
        processes.lead(lambda: shutil.rmtree(folder, ignore_errors=True))
        failure = cause(error)
        if isinstance(failure, OSError):
            raise cannot_write(folder, failure) from error
        raise failure from error
    processes.lead(lambda: force_to_disk(folder))
    # each process reads what is likely its own
    mine = sorted(folder.iterdir())[processes.rank :: processes.count]
    sums: dict[str, int] = {}
    for part in processes.gather({path.name: check_sum(path) for path in mine}):
        assert isinstance(part, dict)
        sums |= part
    return sums


def read(folder: Path, sums: Mapping[str, int]) -> dict[str, Tensor]:
    """The whole tensors, on the CPU, in a process of its own."""
    verify(folder, sums)
    tensors = {name: torch.empty_like(about, device="cpu") for name, about in index(folder).items()}
    fill(folder, tensors, alone=True)
    return tensors


def fill(folder: Path, tensors: dict[str, Tensor], *, alone: bool = False) -> None:
    """Read into the tensors what the folder has under their names: of each its own shares."""
    with warnings.catch_warnings():
        # that it reads for this process alone
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        try:
            load(tensors, storage_reader=Reader(folder), no_dist=alone)
        except CheckpointException as error:
            raise cause(error) from error


def spread(whole: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Give each tensor this process's share of the whole one of its name."""
    for name, tensor in tensors.items():
        value = whole[name].to(tensor.device)
        if isinstance(tensor, DTensor):
            mesh, placements = tensor.device_mesh, tensor.placements
            # every process has the whole: none needs to be sent anything
            share = distribute_tensor(value, mesh, placements, src_data_rank=None)
            tensor.to_local().copy_(share.to_local())
        else:
            tensor.copy_(value)


def index(folder: Path) -> dict[str, Tensor]:
    """The names of the tensors in the folder, and their shapes and dtypes, without values."""
    return {
        name: torch.empty(about.size, dtype=about.properties.dtype, device="meta")
        for name, about in Reader(folder).read_metadata().state_dict_metadata.items()
        if isinstance(about, TensorStorageMetadata)
    }


def verify(folder: Path, sums: Mapping[str, int], processes: Processes = ALONE) -> None:
    """Raise an `OSError` or a `ValueError` unless every file is there and as it was written.

    Each process looks at some of the files.
    """
    for name in sorted(sums)[processes.rank :: processes.count]:
        if check_sum(folder / name) != sums[name]:
            raise ValueError(f"wrong check sum of {folder.name}/{name}")


def cause(error: CheckpointException) -> BaseException:
    """What went wrong in the first process in which something did."""
    return error.failures[min(error.failures)][0]


def check_sum(path: Path) -> int:
    """The CRC-32 of a file."""
    value = 0
    with open(path, "rb") as file:
        while part := file.read(READ_AT_ONCE):
            value = zlib.crc32(part, value)
    return value


class Unpickler(pickle.Unpickler):
    """Reads an index, and refuses whatever names something else."""

    def find_class(self, module: str, name: str) -> Any:
        """What the index may name."""
        if name not in NAMES.get(module, ()):
            raise pickle.UnpicklingError(f"{module}.{name} has no place in it")
        return super().find_class(module, name)


class Reader(FileSystemReader):
    """Torch's own, but for how it reads the index."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The index."""
        with open(Path(self.path) / INDEX, "rb") as file:
            index = Unpickler(file).load()
        if not isinstance(index, Metadata):
            raise pickle.UnpicklingError("its index is none")
        if index.storage_meta is None:
            index.storage_meta = StorageMeta()
        index.storage_meta.load_id = self.load_id
        return index
