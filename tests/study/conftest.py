from pathlib import Path
from typing import Any

import pytest

from milepost import presets
from milepost.training import recipes


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A folder with none beside it: results that lie in folders beside a study's are taken."""
    folder = tmp_path / "study"
    folder.mkdir()
    return folder


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Recipes of mini scale that train in no time; the recipes, to be changed further."""
    task_settings = {
        "flip-flop": {"length": 8},
        "selective-copy": {"data": 2, "blanks": 2},
        "counting": {"max_steps": 8, "trim": 16},
    }
    for task, settings in task_settings.items():
        training = {
            "steps": 3,
            "batch": 2,
            "lr": 1e-3,
            "evaluate_every": 2,
            "evaluate_sequences": 4,
        }
        recipe = {
            "task_settings": settings,
            "options": {"p_max": 4},
            "test_sequences": 4,
            "training": training,
        }
        monkeypatch.setitem(recipes._RECIPES, f"{task}/mini", recipe)
        model = {"dim": 16, "layers": 1, "heads": 2}
        monkeypatch.setitem(presets.MODELS, f"{task}/mini", model)
    return recipes._RECIPES
