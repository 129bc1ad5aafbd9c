"""A study's folder with results typed by hand."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from milepost import studies

LENGTHS = {"in": 128, "length x2": 256, "length x2 sparse": 256, "length x4": 512}

Errors = Mapping[tuple[str, str, str], Sequence[float | None]]


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Make a folder from error rates in per cent by (arm, encoding, test set), one per seed.

    None stands for a failed cell; a missing key for cells that have not run.
    """

    def make(
        errors: Errors,
        *,
        study: str = "cope-table2",
        scale: str = "mini",
        seeds: int = 3,
        encodings: Sequence[str] = ("absolute", "rope", "cope"),
        settings: Mapping[str, object] = {},
    ) -> Path:
        declared = []
        for arm in studies.load(study).arms:
            for encoding in encodings:
                for seed in range(seeds):
                    name = f"{len(declared):016x}"
                    declared.append(
                        {"arm": arm.name, "encoding": encoding, "seed": seed, "hash": name}
                    )
                    found = {
                        test_set: values[seed]
                        for (of, by, test_set), values in errors.items()
                        if (of, by) == (arm.name, encoding) and len(values) > seed
                    }
                    if None in found.values():
                        failure = {"reason": "in the deep\nMemoryError: <i>no room</i>"}
                        write(tmp_path / "failed" / f"{name}.json", failure)
                    elif found:
                        write(tmp_path / "cells" / f"{name}.json", result(found, settings))
        write(
            tmp_path / "study.json",
            {
                "study": study,
                "scale": scale,
                "encodings": list(encodings),
                "seeds": seeds,
                "cells": declared,
            },
        )
        return tmp_path

    return make


def result(errors: Mapping[str, float | None], settings: Mapping[str, object]) -> object:
    rates = {name: (value or 0) / 100 for name, value in errors.items()}
    return {
        "settings": {
            "steps": 600,
            "batch": 16,
            "accumulate": 2,
            "model": {"layers": 2, "heads": 4, "dim": 64},
            **settings,
        },
        "test_sets": {
            name: {"sequences": 8, "length": LENGTHS.get(name, 128), "about": "…"}
            for name in errors
        },
        "errors": {
            name: {"token": rate, "sequence": rate, "last": rate, "sequences": 8, "tokens": 64}
            for name, rate in rates.items()
        },
        "history": [{"step": 10 * i, "loss": 1.0, "error": 0.5 / i} for i in (1, 2, 3)],
        "seconds": 60.0,
        "versions": {"milepost": "0.1.0", "torch": "2.11.0", "python": "3.11.0"},
        "machine": {
            "system": "Linux",
            "processor": "Some Processor",
            "kernels": None,
            "cores": 2,
            "threads": 1,
        },
    }


def write(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
