"""`milepost eval`: a model's scores on tasks of lm-eval, EleutherAI's evaluation harness."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from milepost.errors import UsageError


@dataclass(frozen=True)
class Arguments:
    """Score a model on tasks of lm-eval, from a folder of your own or those that come with it.

    The model and its tokenizer are read from this machine alone. A task that comes with lm-eval may
    download its data.
    """

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """A Hugging Face folder, ours or not, or a run of `milepost train`."""
    tasks: Annotated[str, tyro.conf.arg(metavar="NAME,NAME")]
    """Names or patterns of tasks or groups, with commas between them."""
    include_path: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """A folder with tasks of your own, as YAML files."""
    num_fewshot: int | None = None
    """Examples before each question; as the task says if left out."""
    limit: int | None = None
    """Only the first so many questions of each task."""
    batch_size: int = 1
    """Questions at once."""
    max_length: int | None = None
    """The most tokens the model is given, older ones are cut off; as many as it was made for if
    left out."""
    apply_chat_template: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Put the questions into the tokenizer's chat template."""
    device: str | None = None
    """cpu or cuda; the first GPU if there is one."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write all that lm-eval returns, with each question, as JSON."""


def run(arguments: Arguments) -> int:
    """Print a table of scores."""
    names = [name.strip() for name in arguments.tasks.split(",") if name.strip()]
    if not names:
        raise UsageError("--tasks must name at least one task, got none: give one")
    for name in ("num_fewshot", "limit", "batch_size", "max_length"):
        value, least = getattr(arguments, name), 0 if name == "num_fewshot" else 1
        if value is not None and value < least:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} must be at least {least}, got {value}: give another")
    if arguments.out is not None and arguments.out.exists():
        raise UsageError(f"--out {arguments.out} exists already: name a file that does not")
    if not arguments.directory.is_dir():
        raise UsageError(f"there is no folder {arguments.directory}: check the path")

    from milepost.commands.convert import converter

    convert = converter()
    from milepost.hf import evaluation

    evaluation.harness()
    manager = evaluation.task_manager(names, arguments.include_path)
    model, tokenizer = convert.load(arguments.directory, device=arguments.device)
    if arguments.apply_chat_template and not tokenizer.chat_template:
        raise UsageError(
            f"--apply-chat-template: the tokenizer in {arguments.directory} has no chat template: "
            f"leave it out"
        )
    results = evaluation.evaluate(
        model,
        tokenizer,
        manager.match_tasks(names),
        manager=manager,
        num_fewshot=arguments.num_fewshot,
        limit=arguments.limit,
        batch_size=arguments.batch_size,
        max_length=arguments.max_length,
        apply_chat_template=arguments.apply_chat_template,
        log_samples=arguments.out is not None,
    )
    if arguments.out is not None:
        from milepost.files import write_json

        write_json(arguments.out, plain(results))
    show(results)
    return 0


def plain(value: Any) -> Any:
    """As JSON has it: what it cannot hold becomes its name or text."""
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(entry) for entry in value]
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()  # a number of numpy's or torch's
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float):
        return value
    return getattr(value, "__name__", None) or str(value)


def show(results: Mapping[str, Any]) -> None:
    """Print the scores, one line for each metric of a task."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("task", "metric"):
        table.add_column(head, overflow="fold")
    for head in ("value", "stderr", "n"):
        table.add_column(head, justify="right")
    for task, metric, value, error, count in rows(results):
        table.add_row(task, metric, figure(value), figure(error), count)
    Console().print(table)


def rows(results: Mapping[str, Any]) -> list[tuple[str, str, Any, Any, str]]:
    """Task, metric, value, standard error and number of questions."""
    found = []
    for task, scores in results["results"].items():
        count = results.get("n-samples", {}).get(task, {}).get("effective")
        for key, value in scores.items():
            metric, comma, chosen = key.partition(",")
            if not comma or metric.endswith("_stderr"):
                continue
            name = metric if chosen == "none" else f"{metric} ({chosen})"
            error = scores.get(f"{metric}_stderr,{chosen}")
            found.append((task, name, value, error, "" if count is None else str(count)))
    return found


def figure(value: Any) -> str:
    """A number with four decimals; nothing where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value in (None, "N/A") else str(value)
    return f"{value:.4f}"
