"""Model sizes by name: those that the CoPE, TAPE and FoX papers train, and small ones for a laptop.

Stick-breaking attention's own 1B and 3B models (arXiv 2410.17980) are not here: we have no source
for their sizes yet.

A preset is the keyword arguments of `milepost.model.Config`, without the vocabulary and the
encoding. What a paper leaves unsaid is said in a comment.
"""

from typing import Any

from milepost.errors import unknown

GPT2: dict[str, Any] = {"mlp": "gelu", "norm": "layer", "tied": True, "bias": True}
LLAMA: dict[str, Any] = {"mlp": "swiglu", "norm": "rms", "tied": False, "bias": False}
FOX_PRO: dict[str, Any] = {
    **LLAMA,
    "qk_norm": True,
    "kv_shift": True,
    "output_norm": True,
    "output_gate": True,
    "init_std": 0.02,
}

# CoPE (arXiv 2405.18719). Its released code, which is that of the counting task alone, has ReLU,
# post-norm, tied embeddings and PyTorch's initialisation. Flip-flop follows Liu et al. 2023
# (arXiv 2306.00946), who train GPT-2's block, and so does selective copy here.
COPE: dict[str, dict[str, Any]] = {
    "flip-flop/paper": {**GPT2, "dim": 256, "layers": 4, "heads": 4},
    **{
        f"flip-flop/{dim}d-{layers}l-{heads}h": {
            **GPT2,
            "dim": dim,
            "layers": layers,
            "heads": heads,
        }
        for dim in (128, 256)
        for layers in (2, 4)
        for heads in (2, 4)
    },
    "selective-copy/paper": {**GPT2, "dim": 64, "layers": 2, "heads": 2},
    # flip-flop's: the paper trains no model to count words
    "last-sentence/paper": {**GPT2, "dim": 256, "layers": 4, "heads": 4},
    "counting/paper": {
        **GPT2,
        "mlp": "relu",
        "norm_place": "post",
        "dim": 256,
        "layers": 4,
        "heads": 4,
        "dropout": 0.1,
    },
    "text/paper": {**GPT2, "dim": 768, "layers": 12, "heads": 12, "init_std": 0.02},
    "prose/paper": {**GPT2, "dim": 768, "layers": 12, "heads": 12, "init_std": 0.02},
    "text/cope-124m": {**GPT2, "dim": 768, "layers": 12, "heads": 12, "init_std": 0.02},
    # "resembles the Llama-2 architecture"; 19.8M parameters in all, so embeddings are not tied
    "code/paper": {**LLAMA, "dim": 256, "layers": 4, "heads": 8},
    "code/cope-20m": {**LLAMA, "dim": 256, "layers": 4, "heads": 8, "max_length": 4096},
}

# Liu et al. 2023, "Exposing Attention Glitches with Flip-Flop Language Modeling"
FLIP_FLOP: dict[str, dict[str, Any]] = {
    "flip-flop/liu": {**GPT2, "dim": 512, "layers": 6, "heads": 8, "init_std": 0.02},
}

# TAPE (arXiv 2501.00712). Its adding model is 1024 wide where it is gated: gate and value share the
# 2048 in the released code.
TAPE_ADDITION: dict[str, Any] = {
    "mlp": "geglu",
    "mlp_dim": 1024,
    "norm": "layer",
    "norm_place": "post",
    "tied": False,
    "bias": False,
    "dim": 1024,
    "layers": 16,
    "heads": 16,
}

TAPE: dict[str, dict[str, Any]] = {
    "addition/paper": TAPE_ADDITION,
    "addition/tape-120m": TAPE_ADDITION,
    "text/tape-155m": {**LLAMA, "dim": 768, "layers": 12, "heads": 12, "mlp_dim": 3072},
    "pretraining/paper": {**LLAMA, "dim": 768, "layers": 12, "heads": 12, "mlp_dim": 3072},
    # The same: TAPE's passkeys are asked of Llama 2 7B, which no recipe here trains
    "passkey/paper": {**LLAMA, "dim": 768, "layers": 12, "heads": 12, "mlp_dim": 3072},
    "text/llama-2-7b": {
        **LLAMA,
        "dim": 4096,
        "layers": 32,
        "heads": 32,
        "mlp_dim": 11008,
        "max_length": 8192,
    },
}

# FoX (arXiv 2503.02130): the Pro block, and the Llama block that it is compared with.
# The hidden width is dim · ratio · 2/3 rounded up to 256, ratio 3.5 for Pro and 4 for Llama.
FOX: dict[str, dict[str, Any]] = {
    "text/fox-pro-125m": {**FOX_PRO, "dim": 768, "layers": 12, "heads": 12, "mlp_dim": 1792},
    "text/fox-pro-360m": {**FOX_PRO, "dim": 1024, "layers": 24, "heads": 16, "mlp_dim": 2560},
    "text/fox-pro-760m": {**FOX_PRO, "dim": 1536, "layers": 24, "heads": 24, "mlp_dim": 3584},
    "text/fox-llama-125m": {**LLAMA, "dim": 768, "layers": 12, "heads": 12, "mlp_dim": 2048},
    "text/fox-llama-360m": {**LLAMA, "dim": 1024, "layers": 24, "heads": 16, "mlp_dim": 2816},
    "text/fox-llama-760m": {**LLAMA, "dim": 1536, "layers": 24, "heads": 24, "mlp_dim": 4096},
}

# Two layers of 64: the scale of `make demo`. Text and addition have more to learn.
MINI: dict[str, dict[str, Any]] = {
    "flip-flop/mini": {**GPT2, "dim": 64, "layers": 2, "heads": 2},
    "selective-copy/mini": {**GPT2, "dim": 64, "layers": 2, "heads": 2},
    "counting/mini": {**GPT2, "dim": 64, "layers": 2, "heads": 4},
    "text/mini": {**GPT2, "dim": 128, "layers": 2, "heads": 4},
    **{
        f"{name}/mini": {**GPT2, "dim": 64, "layers": 2, "heads": 2}
        for name in ("prose", "code", "pretraining")
    },
    "passkey/mini": {**GPT2, "dim": 64, "layers": 2, "heads": 2},
    "last-sentence/mini": {**GPT2, "dim": 64, "layers": 2, "heads": 4},
    "addition/mini": {**GPT2, "dim": 64, "layers": 3, "heads": 4},
}

MODELS: dict[str, dict[str, Any]] = {**MINI, **COPE, **FLIP_FLOP, **TAPE, **FOX}


def model(name: str) -> dict[str, Any]:
    """A copy of the preset `name`, or a `UsageError` with the nearest names."""
    if name not in MODELS:
        raise unknown("model preset", name, MODELS)
    return dict(MODELS[name])
