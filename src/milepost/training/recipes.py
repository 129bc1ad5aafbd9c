"""How each task is trained at each scale: the one place where those numbers live.

`paper` repeats the publication as far as it says; `mini` is a smaller task and model, for one CPU
core, that still tells the encodings apart. `milepost train` and the studies both start from here.

What the publications leave open, and what stands here instead:
- Flip-flop (CoPE, arXiv 2405.18719, appendix C): "8 GPUs with batch size 16" is taken as 16 in
  all; the weight decay is that of Liu et al. (arXiv 2306.00946), 0.1.
- Selective copy: batch and learning rate are those of Mamba's experiment (arXiv 2312.00752), 64
  and 1e-4; CoPE states 100k steps. AdamW, its weight decay and the linear decay are flip-flop's.
- Gradients of norm above 1 are scaled down in both, as is usual; neither says so.
- Counting: CoPE's released code, 100 epochs over 10,000 sequences, Adam 7e-5 constant, no clipping.
- Text (CoPE): the learning rate, optimizer and dropout of its language models are not stated; they
  are flip-flop's, with warmup and without dropout. 157,000 steps are 100 epochs of Wikitext-103.
- Last sentence: no paper trains on it. The paper recipe is flip-flop's.
- The language models' tokens are a vocabulary of as many as the papers', learned from the corpus.
- Code (CoPE): 100 billion tokens at 4096 and 5e-4; the batch is not stated, and 256 here.
- Pretraining: TAPE's on C4 (arXiv 2501.00712, Table 5, and its code), 512 sequences in 16 parts.
- Passkey: no paper trains on it. Batch and optimizer are TAPE's on C4 (arXiv 2501.00712), 512
  sequences in 16 parts.
- Addition: TAPE's Table 5, and where it is silent the code of its addition: betas, epsilon, weight
  decay, clipping. That code warms up and cools down by the clock, each for a tenth of it; here the
  warmup has a tenth of the steps, and the decay is linear. CoPE has a position for each token.
- CoPE's number of positions is stated for language modelling only; the released counting code
  uses as many as the context has tokens, and so do its three tasks' recipes at paper scale. That
  code also divides q·e[p] by √D, which Listing 1 does not; only the counting recipe does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost import presets, tasks
from milepost.encoding import options
from milepost.errors import unknown
from milepost.tasks.task import Task
from milepost.training.settings import Settings

SCALES = ("mini", "paper")

# settings that are arguments of `settings`, or follow from them
DECIDED = ("task", "task_settings", "encoding", "encoding_options", "model", "seed")

# What the mini recipes share. Learning rate, warmup and β₂ were chosen so that CoPE leaves its
# first plateau within a demo's time; all encodings are trained with them.
_MINI: dict[str, Any] = {
    "batch": 64,
    "optimizer": "adamw",
    "weight_decay": 0.1,
    "schedule": "cosine",
    "evaluate_every": 25,
    "evaluate_sequences": 128,
}

_LANGUAGE: dict[str, Any] = {
    "task": "text",
    "options": {"p_max": 31},
    "test_sequences": 256,
    "training": {
        **_MINI,
        "batch": 16,
        "steps": 600,
        "lr": 3e-3,
        "betas": (0.9, 0.95),
        "warmup": 60,
        "evaluate_every": 0,
    },
}

_PRETRAINING: dict[str, Any] = {
    "steps": 10_000,
    "batch": 32,
    "accumulate": 16,
    "optimizer": "adamw",
    "lr": 1e-4,
    "weight_decay": 0.01,
    "schedule": "linear",
    "warmup": 200,
}

_WIKITEXT: dict[str, Any] = {
    "options": {"p_max": 64},
    "training": {
        "steps": 157_000,
        "batch": 64,
        "optimizer": "adamw",
        "lr": 3e-4,
        "weight_decay": 0.1,
        "schedule": "linear",
        "warmup": 2_000,
        "evaluate_every": 5_000,
    },
}

# A recipe's name is its task's, unless it says `task`. `task_settings`: where the task differs from
# the paper's. `options`: for the encodings that have them. `test_sequences`: how many of each test
# set are used; the paper's numbers where absent.
_RECIPES: dict[str, dict[str, Any]] = {
    "flip-flop/mini": {
        "task_settings": {"length": 64},
        "options": {"p_max": 31},
        "test_sequences": 256,
        "training": {**_MINI, "steps": 240, "lr": 3e-3, "betas": (0.9, 0.95), "warmup": 30},
    },
    "flip-flop/paper": {
        "options": {"p_max": 512},
        "training": {
            "steps": 10_000,
            "batch": 16,
            "optimizer": "adamw",
            "lr": 3e-4,
            "weight_decay": 0.1,
            "schedule": "linear",
            "evaluate_every": 500,
        },
    },
    "selective-copy/mini": {
        "task_settings": {"data": 24, "blanks": 24},
        "options": {"p_max": 31},
        "test_sequences": 512,
        "training": {
            **_MINI,
            "batch": 32,
            "steps": 340,
            "lr": 4e-3,
            "betas": (0.9, 0.98),
            "warmup": 60,
        },
    },
    "selective-copy/paper": {
        "options": {"p_max": 768},
        "training": {
            "steps": 100_000,
            "batch": 64,
            "optimizer": "adamw",
            "lr": 1e-4,
            "weight_decay": 0.1,
            "schedule": "linear",
            "evaluate_every": 2_000,
        },
    },
    "counting/mini": {
        "task_settings": {"max_steps": 32, "pass_weight": 20, "trim": 64},
        "options": {"p_max": 31},
        "test_sequences": 1000,
        "training": {
            **_MINI,
            "steps": 1000,
            "lr": 3e-3,
            "betas": (0.9, 0.98),
            "warmup": 60,
            "evaluate_every": 100,
            "evaluate_sequences": 256,
        },
    },
    "counting/paper": {
        "options": {"p_max": 512, "convention": "released"},
        "training": {
            "steps": 15_700,
            "batch": 64,
            "optimizer": "adam",
            "lr": 7e-5,
            "schedule": "constant",
            "clip": None,
            "train_sequences": 10_000,
            "evaluate_every": 785,
        },
    },
    "last-sentence/mini": {
        "task_settings": {"sentences": 3, "words": 5, "vocabulary": 2, "most": 2},
        "options": {"p_max": 31},
        "test_sequences": 1000,
        "training": {
            **_MINI,
            "steps": 700,
            "lr": 5e-3,
            "betas": (0.9, 0.98),
            "warmup": 60,
            "evaluate_every": 100,
            "evaluate_sequences": 256,
        },
    },
    "last-sentence/paper": {
        "options": {"p_max": 512},
        "training": {
            "steps": 10_000,
            "batch": 16,
            "optimizer": "adamw",
            "lr": 3e-4,
            "weight_decay": 0.1,
            "schedule": "linear",
            "evaluate_every": 500,
        },
    },
    "text/mini": {
        "task_settings": {"length": 128},
        "options": {"p_max": 31},
        "test_sequences": 256,
        "training": {
            **_MINI,
            "batch": 32,
            "steps": 600,
            "lr": 3e-3,
            "betas": (0.9, 0.95),
            "warmup": 60,
            "evaluate_every": 100,
        },
    },
    "text/paper": _WIKITEXT,
    "addition/mini": {
        "task_settings": {"digits": 3},
        "options": {"p_max": 12},
        "test_sequences": 1024,
        "training": {
            **_MINI,
            "steps": 1600,
            "lr": 3e-3,
            "betas": (0.9, 0.98),
            "warmup": 60,
            "evaluate_every": 100,
        },
    },
    "addition/paper": {
        "options": {"p_max": 123},
        "training": {
            "steps": 20_000,
            "batch": 512,
            "optimizer": "adamw",
            "lr": 1e-4,
            "betas": (0.9, 0.98),
            "eps": 1e-12,
            "weight_decay": 0.01,
            "schedule": "linear",
            "warmup": 2_000,
            "clip": 0.5,
            "evaluate_every": 1_000,
        },
    },
    # the language models of the studies
    "prose/mini": {**_LANGUAGE, "task_settings": {"length": 128}},
    "code/mini": {**_LANGUAGE, "task_settings": {"length": 128, "corpus": "python-code"}},
    "pretraining/mini": {**_LANGUAGE, "task_settings": {"length": 128}},
    "prose/paper": {**_WIKITEXT, "task": "text", "task_settings": {"tokens": 50_257}},
    "code/paper": {
        "task": "text",
        "task_settings": {"length": 4096, "corpus": "python-code", "tokens": 32_000},
        "options": {"p_max": 64},
        "training": {
            "steps": 95_000,
            "batch": 16,
            "accumulate": 16,
            "optimizer": "adamw",
            "lr": 5e-4,
            "weight_decay": 0.1,
            "schedule": "linear",
            "warmup": 2_000,
        },
    },
    "pretraining/paper": {
        "task": "text",
        "task_settings": {"tokens": 32_000},
        "options": {"p_max": 64},
        "training": _PRETRAINING,
    },
    "passkey/mini": {
        "task_settings": {"length": 320},
        "options": {"p_max": 31},
        "test_sequences": 256,
        "training": {
            **_MINI,
            "batch": 32,
            "steps": 600,
            "lr": 3e-3,
            "betas": (0.9, 0.95),
            "warmup": 60,
            "evaluate_every": 100,
        },
    },
    "passkey/paper": {
        "options": {"p_max": 64},
        "training": {**_PRETRAINING, "evaluate_every": 500},
    },
}


# Options that say for which length a table or a stretching is made. It is the training's, also
# where the model must read longer test sequences: that is what distances past the end are about.
_TRAINED_LENGTH = {"relative": "length", "relative-capped": "cap", "yarn": "original_length"}


def settings(
    task: str,
    scale: str,
    encoding: str,
    seed: int = 0,
    *,
    task_settings: Mapping[str, Any] | None = None,
    encoding_options: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Settings:
    """The settings of a run; whatever is given replaces what the recipe says.

    `task` is the name of a recipe: a task's, or that of another recipe for it.
    """
    recipe = find(task, scale)
    preset = presets.model(f"{task}/{scale}")
    task = recipe.get("task", task)
    task_settings = {**recipe.get("task_settings", {}), **(task_settings or {})}
    built = tasks.build(task, **task_settings)
    longest = max(test_set.task.max_length for test_set in built.test_sets().values())
    return Settings(
        **{
            "task": task,
            "task_settings": task_settings,
            # a table of absolute positions must cover the longest test sequence
            "model": {**preset, "max_length": longest, **(model or {})},
            "encoding": encoding,
            "encoding_options": {
                **{
                    name: recipe["options"][name]
                    for name in options(encoding)
                    if name in recipe["options"]
                },
                **trained_length(encoding, built, encoding_options or {}),
                **(encoding_options or {}),
            },
            "seed": seed,
            **recipe["training"],
            **changes,
        }
    )


def trained_length(
    encoding: str, task: Task, given: Mapping[str, Any] | None = None
) -> dict[str, int]:
    """The option that ends an encoding's table at the longest training sequence, if it has one.

    `given` are the options that are decided: TAPE has that option where it starts from YaRN.
    """
    parts = encoding.split("+")
    if "tape" in parts and (given or {}).get("initial") == "yarn":
        parts = ["yarn"]
    # The model reads all tokens but the last, so that distances end one earlier.
    return {_TRAINED_LENGTH[part]: task.max_length - 1 for part in parts if part in _TRAINED_LENGTH}


def test_sequences(task: str, scale: str) -> dict[str, int]:
    """How many sequences of each test set a run of this scale is tested on."""
    recipe = find(task, scale)
    test_sets = tasks.build(recipe.get("task", task), **recipe.get("task_settings", {})).test_sets()
    return {
        name: recipe.get("test_sequences", test_set.sequences)
        for name, test_set in test_sets.items()
    }


def find(task: str, scale: str) -> dict[str, Any]:
    """The recipe itself."""
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if task not in names():
        raise unknown("task", task, names())
    return _RECIPES[f"{task}/{scale}"]


def others(task: str) -> tuple[str, ...]:
    """The recipes for a task beside its own."""
    return tuple(name for name in names() if find(name, SCALES[0]).get("task") == task)


def names() -> tuple[str, ...]:
    """What there are recipes for: every task, and the ways to train one that have names."""
    return tuple(sorted({recipe.split("/")[0] for recipe in _RECIPES}))
