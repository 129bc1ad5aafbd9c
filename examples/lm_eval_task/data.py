"""The questions of a task, from the file of its name in this folder."""

import json
from pathlib import Path

from datasets import Dataset, DatasetDict


def load(file: str, **_: object) -> DatasetDict:
    """All lines of the JSONL file, as the test split."""
    lines = (Path(__file__).parent / file).read_text(encoding="utf-8").splitlines()
    return DatasetDict({"test": Dataset.from_list([json.loads(line) for line in lines])})
