"""`attn_implementation`: which kernels run a model's ops. What they compute, the encoding decides.

    milepost              the fastest that takes the operands (`backend="auto"`)
    milepost_reference    plain PyTorch; "eager" is the same
    milepost_native       the compiled kernels for CPUs
    milepost_triton       the kernels for GPUs

transformers' own (sdpa, flash_attention_2, flex_attention, paged) are refused: they would leave the
encoding out and say nothing.
"""

from typing import Any, NoReturn

from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from milepost.encoding import find
from milepost.errors import UsageError
from milepost.ops import dispatch

DEFAULT = "milepost"
BACKENDS = {
    DEFAULT: "auto",
    "milepost_reference": "reference",
    "milepost_native": "native",
    "milepost_triton": "triton",
}


def implementation(name: str | None, encoding: str) -> str:
    """The name under which a request is kept, or a `UsageError` with the reason why not."""
    if name is None:
        return DEFAULT
    if name == "eager":
        return "milepost_reference"
    if name not in BACKENDS:
        raise UsageError(
            f"attn_implementation={name!r} would compute plain attention and leave the encoding "
            f"{encoding!r} out: choose one of {', '.join(BACKENDS)}, or none for the fastest"
        )
    op = find(encoding).op_name
    if BACKENDS[name] in dispatch.FUSED and dispatch.implementation(BACKENDS[name], op) is None:
        raise UsageError(
            f"attn_implementation={name!r} has no kernel for the encoding {encoding!r} (op {op}): "
            f"choose milepost_reference, or leave it out for the fastest that takes it"
        )
    return name


def not_for_stock_models(module: Any, *_: Any, **__: Any) -> NoReturn:
    """What a stock model that is told attn_implementation="milepost" runs into."""
    raise UsageError(
        f"attn_implementation='milepost' names the kernels of Milepost models, and this is a "
        f"{type(module).__name__}, which has no encoding of ours: make one with "
        f"milepost.hf.retrofit(model, encoding=...)"
    )


def register() -> None:
    """Make the names known to transformers, each with a mask: without one it would be dropped."""
    for name in BACKENDS:
        AttentionInterface.register(name, not_for_stock_models)
        AttentionMaskInterface.register(name, eager_mask)
