"""`milepost generate`: a text, and what a model writes after it."""

import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from milepost.errors import UsageError
from milepost.wording import counted


@dataclass(frozen=True)
class Arguments:
    """Continue a text: what is new goes to standard output, as it is made.

    The text comes from --prompt, from --file, or with - from standard input, and is taken as it is,
    with the line break at its end if there is one. The model writes on until it says that it is
    done, which those of `milepost train` never do, or until --max-new-tokens.
    """

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """A run of `milepost train`, or a Hugging Face folder, ours or not."""
    stdin: Annotated[Literal["-"] | None, tyro.conf.Positional, tyro.conf.arg(metavar="-")] = None
    """Read the text from standard input."""
    prompt: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    """The text."""
    file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Read the text from a file, in UTF-8; - is standard input."""
    max_new_tokens: int = 100
    """How many tokens to add at most."""
    temperature: float = 0.0
    """0 takes the likeliest token; above 0 draws from softmax(logits / it)."""
    top_p: float | None = None
    """Draw among the likeliest tokens that have this probability together."""
    top_k: int | None = None
    """Draw among so many of the likeliest tokens."""
    beams: int = 1
    """How many texts to follow at once. With more than 1 nothing is printed before the end."""
    seed: int = 0
    """Of what is drawn."""
    device: str | None = None
    """cpu or cuda; the first GPU if there is one."""
    attn_implementation: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Which kernels run: milepost (the fastest), milepost_reference, milepost_native or
    milepost_triton; a stock model has those of transformers."""


def run(arguments: Arguments) -> int:
    """Write on, with the speed on standard error."""
    check(arguments)
    if not arguments.directory.is_dir():
        raise UsageError(f"there is no folder {arguments.directory}: check the path")
    text = prompt(arguments)
    from milepost.commands.convert import converter

    convert = converter()
    model, tokenizer = convert.load(
        arguments.directory,
        device=arguments.device,
        attn_implementation=arguments.attn_implementation,
    )
    write(model, tokenizer, text, arguments)
    return 0


def check(arguments: Arguments) -> None:
    """A `UsageError` for a number that is out of range, or would not be heeded."""
    drawn = arguments.temperature > 0
    whole, share = "a whole number of at least 1", "above 0 and at most 1"
    finite = math.isfinite(arguments.temperature) and arguments.temperature >= 0
    for name, valid, expected in (
        ("max_new_tokens", arguments.max_new_tokens >= 1, whole),
        ("temperature", finite, "a finite number of at least 0"),
        ("top_p", arguments.top_p is None or 0 < arguments.top_p <= 1, share),
        ("top_k", arguments.top_k is None or arguments.top_k >= 1, whole),
        ("beams", arguments.beams >= 1, whole),
        ("top_p", drawn or arguments.top_p is None, "given with a --temperature above 0"),
        ("top_k", drawn or arguments.top_k is None, "given with a --temperature above 0"),
    ):
        if not valid:
            option, value = name.replace("_", "-"), getattr(arguments, name)
            raise UsageError(f"--{option} must be {expected}, got {value}: change it")


def prompt(arguments: Arguments) -> str:
    """The text to continue."""
    given = [arguments.prompt is not None, arguments.file is not None, arguments.stdin is not None]
    if sum(given) != 1:
        raise UsageError(
            f"expected a text to continue, from one of --prompt TEXT, --file FILE and - (standard "
            f"input), got {sum(given)} of them: give one"
        )
    if arguments.prompt is not None:
        return arguments.prompt
    from milepost.files import cannot_read

    path = arguments.file or Path("-")
    try:
        read = sys.stdin.buffer.read if str(path) == "-" else path.read_bytes
        return read().decode()
    except OSError as error:
        raise cannot_read(path, error) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} must be text in UTF-8, got bytes that are not, at {error.start}: convert it"
        ) from error


def write(model: Any, tokenizer: Any, text: str, arguments: Arguments) -> None:
    """Print what the model adds to the text."""
    import torch

    from milepost.hf.tokenizer import encode
    from milepost.training.device import randomness_of

    ids = encode(tokenizer, text)
    if not ids:
        raise UsageError("the text must have at least one token, got none: give one to begin with")
    tokens = torch.tensor([ids], device=model.device)
    streamer = Printer(tokenizer) if arguments.beams == 1 else None
    begun = time.perf_counter()
    with randomness_of(arguments.seed, model.device):
        try:
            out = model.generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                generation_config=settings(model, arguments),
                streamer=streamer,
            )
        except BaseException:
            if streamer is not None:
                streamer.end()
            raise
    seconds = time.perf_counter() - begun
    new = out[0, len(ids) :]
    if streamer is None:
        print(tokenizer.decode(new, skip_special_tokens=True))
    sys.stdout.flush()
    print(
        f"{counted(len(new), 'token')} in {seconds:.2f} s after {len(ids)} of the text, "
        f"{len(new) / seconds:.1f} tokens per second",
        file=sys.stderr,
    )


class Printer:
    """Prints what a model writes as soon as its characters are whole.

    transformers' own waits for the end of a word, which text in bytes or without spaces may not
    have.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.tokens: list[int] | None = None
        self.printed = 0

    def put(self, tokens: Any) -> None:
        """Take the prompt first, and then one token after another."""
        if self.tokens is None:
            self.tokens = []
            return
        self.tokens += tokens.flatten().tolist()
        self._print(final=False)

    def end(self) -> None:
        """Print what is left, whole or not."""
        if self.tokens is not None:
            self._print(final=True)
        self.tokens = None

    def _print(self, final: bool) -> None:
        text = self.tokenizer.decode(self.tokens, skip_special_tokens=True)
        if final or not text.endswith("\ufffd"):  # the bytes so far are not yet a character
            print(text[self.printed :], end="\n" if final else "", flush=True)
            self.printed = len(text)


def settings(model: Any, arguments: Arguments) -> Any:
    """The folder's own generation settings, with the command's in their place."""
    import copy

    chosen = copy.deepcopy(model.generation_config)
    drawn = arguments.temperature > 0
    chosen.update(
        max_length=None,
        max_new_tokens=arguments.max_new_tokens,
        num_beams=arguments.beams,
        do_sample=drawn,
        temperature=arguments.temperature if drawn else None,
        # None would be transformers' own default of 50
        top_k=(arguments.top_k or 0) if drawn else None,
        top_p=(arguments.top_p or 1.0) if drawn else None,
    )
    if chosen.pad_token_id is None:
        ends = chosen.eos_token_id
        chosen.pad_token_id = ends[0] if isinstance(ends, list) else ends
    return chosen
