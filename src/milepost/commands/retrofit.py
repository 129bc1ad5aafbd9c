"""`milepost retrofit`: a Hugging Face checkpoint with an encoding put into it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from milepost.commands.convert import converter
from milepost.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from milepost.hf import MilepostForCausalLM
    from milepost.hf.retrofit import Difference

TOKENS = 512
"""At most so many of --text."""


@dataclass(frozen=True)
class Arguments:
    """Put an encoding into a Llama, Mistral, Qwen2, Qwen3 or GPT-2 checkpoint.

    The result is a folder for AutoModelForCausalLM.from_pretrained, after `import milepost.hf`.
    What is added starts at zero where the encoding allows it, and how far the model is from the
    original is measured and printed.
    """

    checkpoint: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CHECKPOINT")]
    """A folder, or a name on the Hub."""
    encoding: Annotated[str, tyro.conf.arg(metavar="NAME")]
    """From `milepost encodings`."""
    out: Path
    """A folder that is not there yet."""
    encoding_options: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Options of the encoding, such as p_max=64 shared=true."""
    drop_rope: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Put the encoding in the place of the host's own positions, not beside them."""
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Of the weights; the checkpoint's own if left out."""
    text: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Compare the two models on the beginning of this text, not on random tokens."""


def run(arguments: Arguments) -> int:
    """Write the folder, and print what was added and how far the start is from the original."""
    converter()
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModelForCausalLM

    from milepost.commands.pairs import pairs
    from milepost.hf import retrofit
    from milepost.hf.folders import refuse_existing, written_whole
    from milepost.hf.retrofit import difference, equal_starts, plan, random_tokens, refuse_run

    refuse_existing(arguments.out)
    refuse_run(Path(arguments.checkpoint))
    options = pairs("encoding-options", arguments.encoding_options)
    keep_rope = not arguments.drop_rope
    dtype = {} if arguments.dtype is None else {"dtype": arguments.dtype}
    try:
        # refuse what cannot be done before anything large is read
        plan(
            AutoConfig.from_pretrained(arguments.checkpoint), arguments.encoding, options, keep_rope
        )
        tokenizer = tokenizer_of(arguments.checkpoint)
        tokens = probe(arguments, tokenizer)
        original = AutoModelForCausalLM.from_pretrained(arguments.checkpoint, **dtype)
    except UsageError:
        raise
    except (OSError, ValueError, SafetensorError) as error:
        raise UsageError(
            f"cannot load {arguments.checkpoint}: give a checkpoint's folder or its name on the "
            f"Hub. {error}"
        ) from error
    if tokens is None:
        tokens = random_tokens(original.config)
    model = retrofit(
        original, arguments.encoding, encoding_options=options, keep_rope=keep_rope, probe=0
    )
    model.config.made_from = arguments.checkpoint
    start = difference(model, original, tokens[:, : original.config.max_position_embeddings])
    with written_whole(arguments.out) as partial:
        model.save_pretrained(partial)
        if tokenizer is not None:
            tokenizer.save_pretrained(partial)
    show(arguments, model, start, equal_starts(original.config))
    if tokenizer is None:
        print(f"{arguments.checkpoint} has no tokenizer, and so has {arguments.out}")
    return 0


def show(
    arguments: Arguments, model: MilepostForCausalLM, start: Difference, equal: tuple[str, ...]
) -> None:
    """Print the table, and in words whether the model starts as the original."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    config = model.config
    options = "".join(f" {name}={value}" for name, value in config.encoding_options.items())
    added = sum(parameter.numel() for parameter in model.model.encoding.parameters())
    total = sum(parameter.numel() for parameter in model.parameters())
    probed = "random tokens" if arguments.text is None else f"tokens of {arguments.text}"
    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")
    table.add_row("encoding", escape(f"{config.encoding}{options}"))
    table.add_row("parameters added", f"{added:,} of {total:,}")
    table.add_row("compared on", escape(f"{start.tokens} {probed}"))
    table.add_row("largest difference of a logit", f"{start.logits:.3g} (of {start.largest:.3g})")
    table.add_row("divergence of the next token", f"{start.divergence:.3g} nats")
    table.add_row("same likeliest token", f"{100 * start.agreement:.3g} %")
    console = Console()
    console.print(table)
    print(f"{arguments.out}: load it by AutoModelForCausalLM after `import milepost.hf`")
    print(verdict(model, start, equal))


def verdict(model: MilepostForCausalLM, start: Difference, equal: tuple[str, ...]) -> str:
    """Whether a model starts as the original, and what to do if it does not."""
    from milepost.hf.retrofit import rounding

    if start.divergence <= rounding(model.dtype):
        if not any(True for _ in model.model.encoding.parameters()):
            return "It starts as the original. Nothing was added that could be trained alone."
        return "It starts as the original: what was added can be trained alone."
    return (
        "It does not start as the original: train all of it, not the addition alone; or take an "
        f"encoding that starts equal, without --drop-rope: {', '.join(equal)}."
    )


def tokenizer_of(checkpoint: str) -> Any:
    """The checkpoint's tokenizer, or None if it has none."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(checkpoint)
    except (OSError, ValueError, KeyError):
        return None


def probe(arguments: Arguments, tokenizer: Any) -> Tensor | None:
    """The first tokens (1, S) of --text, or None."""
    if arguments.text is None:
        return None
    from milepost.files import cannot_read

    if tokenizer is None:
        raise UsageError(
            f"--text needs the checkpoint's tokenizer, and {arguments.checkpoint} has none: leave "
            f"--text out"
        )
    try:
        text = arguments.text.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise cannot_read(arguments.text, error) from error
    # no token is longer than a few dozen letters
    tokens: Tensor = tokenizer(text[: 64 * TOKENS], return_tensors="pt").input_ids[:, :TOKENS]
    if not tokens.shape[1]:
        raise UsageError(f"--text must have a word at least, got {arguments.text}, which is empty")
    return tokens.long()
