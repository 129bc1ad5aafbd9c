"""The model and the text of `milepost look`, from a folder and what the command line says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from milepost.commands.look import Arguments
    from milepost.look import Subject
    from milepost.tasks.task import Task


def subject(folder: Path, arguments: Arguments) -> Subject:
    """What the model in a folder does with the text that is asked for.

    Raises:
        UsageError: the folder holds no model, or one that cannot be traced, or the text is not of
            its vocabulary.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}: check the path")
    from milepost.training import rundir

    if (folder / rundir.CHECKPOINT).exists():
        return of_run(folder, arguments)
    return of_huggingface(folder, arguments)


def of_run(folder: Path, arguments: Arguments) -> Subject:
    """A run of `milepost train`, with a text or a sequence of its own task."""
    from milepost.evaluate import load_run

    model, settings, task = load_run(folder, arguments.device)
    return of_task(f"{settings.encoding}, {task.name} ({folder.name})", model, task, arguments)


def of_huggingface(folder: Path, arguments: Arguments) -> Subject:
    """A model of transformers with our attention: as the run that it was, or with a text."""
    import torch

    from milepost import look, tasks
    from milepost.commands.convert import converter

    convert = converter()
    model, tokenizer = convert.load(folder, device=arguments.device)
    encoding = getattr(model.config, "encoding", model.config.model_type)
    title = f"{encoding} ({folder.name})"
    text = given(arguments)
    name = convert.task_of(folder)
    if name is not None and (text is None or name != "text"):
        settings, _ = convert.read_run(folder)
        return of_task(
            title, model, tasks.build(settings.task, **settings.task_settings), arguments
        )
    if text is None:
        raise UsageError(
            f"{folder} has no task of its own to take a text from: give --text TEXT or --file FILE"
        )
    from milepost.hf.tokenizer import encode

    ids = encode(tokenizer, text)
    if not ids:
        raise UsageError("text must have at least one token, got none: give one")
    tokens = cut(torch.tensor(ids), arguments)
    return look.of_text(title, model, tokens, texts_of(tokenizer, tokens.tolist()))


def of_task(title: str, model: nn.Module, task: Task, arguments: Arguments) -> Subject:
    """A model with a text in the tokens of its task, or with a sequence it was not trained on."""
    from milepost import look

    if arguments.task not in (None, task.name):
        raise UsageError(
            f"--task must be {task.name!r}, on which the model was trained, got "
            f"{arguments.task!r}: leave it out, or give --text in the words of {task.name}"
        )
    text = given(arguments)
    if text is None:
        tokens = look.sample(task, arguments.length, arguments.sequence)
    else:
        tokens = look.encode(task, text)
    return look.of_task(title, model, task, cut(tokens, arguments))


def texts_of(tokenizer: Any, tokens: list[int]) -> list[str]:
    """What each token stands for, its white space with it: together they are the text.

    A tokenizer's own text for one token may lack the space before a word; what it adds to the
    tokens before it lacks nothing. Of the tokens of one character the last stands for it, and the
    others for nothing.
    """
    texts, before = [], ""
    for count in range(1, len(tokens) + 1):
        so_far = tokenizer.decode(tokens[:count], clean_up_tokenization_spaces=False)
        if count < len(tokens):
            so_far = so_far.rstrip("\ufffd")  # the beginning of a character
        if so_far.startswith(before):
            texts.append(so_far[len(before) :])
        else:
            texts.append(str(tokenizer.decode([tokens[count - 1]])))
        before = so_far
    return texts


def given(arguments: Arguments) -> str | None:
    """The text of --text or --file; None for a sequence of a task."""
    if arguments.file is None:
        return arguments.text
    from milepost.files import cannot_read

    try:
        return arguments.file.read_bytes().decode()
    except OSError as error:
        raise cannot_read(arguments.file, error) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"--file {arguments.file} must be text in UTF-8, got bytes that are not, at "
            f"{error.start}: convert it"
        ) from error


def cut(tokens: Tensor, arguments: Arguments) -> Tensor:
    """The first `--tokens` of them, and a word about it where there are more."""
    if len(tokens) > arguments.tokens:
        print(
            f"the first {arguments.tokens} of {len(tokens)} tokens are shown; --tokens N shows "
            f"more, in a larger page",
            file=sys.stderr,
        )
    return tokens[: arguments.tokens]
