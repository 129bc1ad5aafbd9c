"""`milepost ask`: questions with one right answer, asked of any model that writes text."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from milepost.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from milepost.tasks.passkey import Score

LENGTHS = {"passkey": (1024, 2048, 4096), "last-sentence": (2, 4, 8)}
TOKENS = {"passkey": 8, "last-sentence": 40}
TRIALS = 20
HEADS = {"passkey": ("length", "depth"), "last-sentence": ("prompts",)}

Scores = dict[tuple[str, ...], "Score"]
Answers = list[dict[str, Any]]


@dataclass(frozen=True)
class Arguments:
    """Ask a model for a passkey in a long text, or how often the last sentence has a word.

    Answers are scored by rules, with 95 % intervals in which several answers to one prompt count as
    if they did not depend on each other. Greedy if --temperature is left out; the CoPE paper asks
    GPT-4 with --temperature 1 --top-p 1, and Llama 2 70B Chat with --temperature 0.6 --top-p 0.9.
    """

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """A Hugging Face folder, ours or not, or a run of `milepost train` on text."""
    question: Annotated[
        Literal["passkey", "last-sentence"], tyro.conf.Positional, tyro.conf.arg(metavar="WHAT")
    ]
    """passkey or last-sentence."""
    lengths: tuple[int, ...] = ()
    """Of passkey prompts in the model's tokens (1024 2048 4096), or how many sentences (2 4 8)."""
    trials: int | None = None
    """Prompts of each length (20), and of passkeys at each depth."""
    depths: tuple[float, ...] = ()
    """Where a passkey stands: 0 is the beginning, 1 the end (0 0.25 0.5 0.75 1)."""
    samples: int = 1
    """Answers to each prompt."""
    temperature: float = 0.0
    """0 takes the likeliest token; above 0 draws from softmax(logits / it)."""
    top_p: float | None = None
    """Draw among the likeliest tokens that have this probability together."""
    max_new_tokens: int | None = None
    """The most tokens of an answer (8 for a passkey, 40 for last-sentence)."""
    apply_chat_template: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Put each prompt into the tokenizer's chat template."""
    begin: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Begin the answer of last-sentence for the model, for those not trained to chat."""
    seed: int = 0
    """Of the prompts, and of what is drawn."""
    device: str | None = None
    """cpu or cuda; the first GPU if there is one."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write the scores, with every prompt and answer, as JSON."""


def run(arguments: Arguments) -> int:
    """Print a table of scores."""
    check(arguments)
    from milepost.commands.convert import converter

    convert = converter()
    model, tokenizer = convert.load(arguments.directory, device=arguments.device)
    if arguments.apply_chat_template and not tokenizer.chat_template:
        raise UsageError(
            f"--apply-chat-template: the tokenizer in {arguments.directory} has no chat template: "
            f"leave it out"
        )
    from milepost.hf.tokenizer import words_of
    from milepost.training.device import randomness_of

    if words_of(tokenizer) is not None:
        task = convert.task_of(arguments.directory)
        words = f"the task {task}" if task else "one task"
        raise UsageError(
            f"{arguments.directory}: its tokenizer knows the words of {words} alone, expected a "
            f"model of English, such as a run of the task passkey or text, or a Hugging Face "
            f"folder; `milepost evaluate` tests a run on its own task"
        )
    asking = passkey if arguments.question == "passkey" else last_sentence
    with randomness_of(arguments.seed, model.device):
        scores, answers = asking(model, tokenizer, arguments)
    if arguments.out is not None:
        from milepost.files import write_json

        write_json(arguments.out, as_json(arguments, scores, answers))
    show(arguments.question, scores)
    return 0


def check(arguments: Arguments) -> None:
    """A `UsageError` for what is out of range, or would not be heeded."""
    from milepost.commands import generate

    generate.check(decoding(arguments, 1))
    for name in ("trials", "samples", "max_new_tokens"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} must be at least 1, got {value}: give another")
    if arguments.samples > 1 and arguments.temperature == 0:
        raise UsageError(
            f"--samples must be 1 with --temperature 0, got {arguments.samples}: the likeliest "
            f"answer is always the same, so give a temperature above 0"
        )
    if arguments.depths and arguments.question != "passkey":
        raise UsageError(
            f"--depths must be left out for {arguments.question}, which has none: leave it out"
        )
    if arguments.begin and (arguments.question == "passkey" or arguments.apply_chat_template):
        raise UsageError(
            "--begin must be left out for passkey, whose prompt begins the answer, and with "
            "--apply-chat-template, which gives the model the turn: leave it out"
        )
    if arguments.out is not None and arguments.out.exists():
        raise UsageError(f"--out {arguments.out} exists already: name a file that does not")
    if not arguments.directory.is_dir():
        raise UsageError(f"there is no folder {arguments.directory}: check the path")


def passkey(model: Any, tokenizer: Any, arguments: Arguments) -> tuple[Scores, Answers]:
    """The scores by length and depth, and the answers."""
    from milepost.tasks import passkey as task

    encode = encoder(tokenizer, arguments)
    trials = task.trials(
        encode,
        arguments.lengths or LENGTHS["passkey"],
        depths=arguments.depths or task.DEPTHS,
        count=arguments.trials or TRIALS,
        seed=arguments.seed,
    )
    asked = [trial for trial in trials for _ in range(arguments.samples)]
    answers: Answers = []

    def heard(tokens: Sequence[int]) -> str:
        trial, text = asked[len(answers)], decode(tokenizer, tokens)
        right = task.is_answer(text, trial.key)
        answers.append({**asdict(trial), "answer": text, "right": right})
        return text

    scores = task.score(
        with_time_left(asked, len(asked)),
        writer(model, arguments),
        encode=encode,
        decode=heard,
        count=arguments.max_new_tokens or TOKENS["passkey"],
        device=model.device,
    )
    return {(str(length), f"{depth:g}"): one for (length, depth), one in scores.items()}, answers


def last_sentence(model: Any, tokenizer: Any, arguments: Arguments) -> tuple[Scores, Answers]:
    """The scores by number of sentences, and the answers."""
    from milepost.tasks import last_sentence as task

    encode = encoder(tokenizer, arguments)
    trials = task.trials(
        arguments.lengths or LENGTHS["last-sentence"],
        count=arguments.trials or TRIALS,
        seed=arguments.seed,
    )
    if arguments.begin:
        trials = [task.begun(trial) for trial in trials]
    found = task.answers(
        trials,
        writer(model, arguments),
        encode=encode,
        decode=lambda tokens: decode(tokenizer, tokens),
        samples=arguments.samples,
        count=arguments.max_new_tokens or TOKENS["last-sentence"],
        device=model.device,
    )
    answers = list(with_time_left(found, len(trials) * arguments.samples))
    described = [
        {**asdict(one.trial), "answer": one.text, "said": one.said, "right": one.right}
        for one in answers
    ]
    return {(group,): one for group, one in task.tally(answers).items()}, described


def encoder(tokenizer: Any, arguments: Arguments) -> Callable[[str], list[int]]:
    """From a prompt to its tokens, with the chat template if asked for."""
    from milepost.hf.tokenizer import encode

    def in_template(prompt: str) -> list[int]:
        said = [{"role": "user", "content": prompt}]
        text = tokenizer.apply_chat_template(said, add_generation_prompt=True, tokenize=False)
        return encode(tokenizer, text, add_special_tokens=False)  # the template has them

    return in_template if arguments.apply_chat_template else lambda text: encode(tokenizer, text)


def decode(tokenizer: Any, tokens: Sequence[int]) -> str:
    """The text of an answer."""
    return str(tokenizer.decode(tokens, skip_special_tokens=True))


def writer(model: Any, arguments: Arguments) -> "Callable[[Tensor, int], Tensor]":
    """From a prompt's tokens and a count to the new tokens, as the command line says."""
    import torch

    from milepost.commands import generate

    def write(tokens: "Tensor", count: int) -> "Tensor":
        out = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            generation_config=generate.settings(model, decoding(arguments, count)),
        )
        new: Tensor = out[:, tokens.shape[1] :]
        return new

    return write


def decoding(arguments: Arguments, count: int) -> Any:
    """The same as `milepost generate` would be told."""
    from milepost.commands import generate

    return generate.Arguments(
        arguments.directory,
        max_new_tokens=count,
        temperature=arguments.temperature,
        top_p=arguments.top_p,
    )


def with_time_left(things: Iterable[Any], count: int) -> Iterator[Any]:
    """The same things, with a line on the progress of whoever takes them on standard error."""
    from milepost.report.live import CountLine

    with CountLine("asking", "answer") as line:
        for done, thing in enumerate(things):
            if done:
                line(done, count)
            yield thing


def as_json(arguments: Arguments, scores: Scores, answers: Answers) -> dict[str, Any]:
    """What was asked and how, the scores, and every answer."""
    given = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in asdict(arguments).items()
        if name != "out"
    }
    shares = [
        {
            **dict(zip(HEADS[arguments.question], of, strict=True)),
            "right": one.right,
            "trials": one.trials,
            "share": one.share,
            "interval": one.interval,
        }
        for of, one in scores.items()
    ]
    return {"format": "milepost ask 1", "arguments": given, "scores": shares, "answers": answers}


def show(question: str, scores: Scores) -> None:
    """Print a line for each group of prompts."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(HEADS[question][0], overflow="fold")
    for head in (*HEADS[question][1:], "right", "95 % interval", "n"):
        table.add_column(head, justify="right")
    for of, one in scores.items():
        low, high = one.interval
        table.add_row(*of, f"{one.share:.1%}", f"{low:.1%} to {high:.1%}", str(one.trials))
    Console().print(table)
