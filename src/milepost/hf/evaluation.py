"""Scores on tasks of lm-eval, EleutherAI's evaluation harness, with our models known to it.

Its own command cannot load them, as it imports nothing of ours. `evaluate` is its `simple_evaluate`
around a model that is loaded already.
"""

import copy
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch

from milepost.errors import UsageError
from milepost.hf.tokenizer import encode


def harness() -> Any:
    """The package lm_eval, or a `UsageError` where it is not installed."""
    try:
        import lm_eval
    except ImportError as error:
        if error.name != "lm_eval":
            raise
        raise UsageError("milepost eval needs lm-eval: pip install 'milepost[eval]'") from error
    return lm_eval


def task_manager(names: Sequence[str], include_path: Path | None) -> Any:
    """Where lm-eval finds the tasks; its own are looked through only for what is nowhere else."""
    from lm_eval.tasks import TaskManager

    if include_path is not None and not include_path.is_dir():
        raise UsageError(f"--include-path must be a folder with tasks, got {include_path}")
    path = None if include_path is None else str(include_path)
    missing, manager = list(names), None
    for defaults in (False, True):
        if path is None and not defaults:
            continue
        manager = TaskManager(include_path=path, include_defaults=defaults)
        missing = [name for name in names if not manager.match_tasks([name])]
        if not missing:
            return manager
    assert manager is not None
    near = get_close_matches(missing[0], manager.all_tasks, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    raise UsageError(
        f"unknown task {missing[0]!r}: {hint}`lm_eval ls tasks` lists those that come with "
        f"lm-eval, and --include-path is for others"
    )


def evaluate(
    model: Any,
    tokenizer: Any,
    tasks: Sequence[str],
    *,
    manager: Any,
    batch_size: int = 1,
    max_length: int | None = None,
    apply_chat_template: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """What lm-eval's `simple_evaluate` returns for a model of transformers.

    Args:
        model: from `milepost.hf`, or any causal language model.
        tokenizer: its own. One without special tokens, as a task's, is used without any.
        tasks: names that `manager` knows.
        manager: from `task_manager`.
        batch_size: questions at once.
        max_length: the most tokens, those the model was made for if None.
        apply_chat_template: whether to put questions into the tokenizer's chat template.
        **options: of `simple_evaluate`.
    """
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM

    ended = tokenizer.eos_token_id is not None
    wrapper = HFLM if ended else without_special_tokens(HFLM)
    with without_remarks():
        wrapped = wrapper(
            pretrained=model,
            backend="causal",
            tokenizer=tokenizer,
            batch_size=batch_size,
            max_length=max_length,
        )
        try:
            results: dict[str, Any] = simple_evaluate(
                wrapped,
                tasks=list(tasks),
                task_manager=manager,
                apply_chat_template=apply_chat_template,
                batch_size=batch_size,
                **options,
            )
        except ConnectionError as error:
            raise UsageError(
                f"a task's data could not be downloaded ({str(error).splitlines()[0]}): connect, "
                f"or take a task whose data is on this machine"
            ) from error
    return results


def without_special_tokens(base: type) -> Any:
    """HFLM for a tokenizer that has no end of text, for which the original adds ids it has not."""

    class WithoutSpecialTokens(base):
        def __init__(self, tokenizer: Any, **options: Any) -> None:
            # it would be given a padding token beyond the end of the model's vocabulary
            super().__init__(tokenizer=copy.deepcopy(tokenizer), **options)
            self.tokenizer = tokenizer

        @property
        def prefix_token_id(self) -> int:
            if self.tokenizer.bos_token_id is not None:
                return int(self.tokenizer.bos_token_id)
            raise UsageError(
                "the task asks for the probability of a text from its first token on, and the "
                "tokenizer has no token to stand before it: take a task with a context before what "
                "is scored, or milepost.perplexity for a whole text"
            )

        def tok_encode(
            self,
            string: str,
            add_special_tokens: bool | None = None,
            left_truncate_len: int | None = None,
            **_: Any,
        ) -> list[int]:
            tokens = encode(self.tokenizer, string)
            return tokens[-left_truncate_len:] if left_truncate_len else tokens

        def tok_batch_encode(
            self,
            strings: Sequence[str],
            padding_side: str = "left",
            left_truncate_len: int | None = None,
            truncation: bool = False,
        ) -> tuple[torch.Tensor, torch.Tensor]:
            rows = [self.tok_encode(text, left_truncate_len=left_truncate_len) for text in strings]
            longest = max(map(len, rows))
            # which token pads is all the same, the mask hides it
            tokens = torch.zeros(len(rows), longest, dtype=torch.int64)
            mask = torch.zeros_like(tokens)
            for i, row in enumerate(rows):
                first = longest - len(row) if padding_side == "left" else 0
                tokens[i, first : first + len(row)] = torch.tensor(row)
                mask[i, first : first + len(row)] = 1
            return tokens, mask

        def tok_decode(self, tokens: Any, skip_special_tokens: bool = True) -> Any:
            # None is the end of text, which it asks for to stop there
            return None if tokens is None else super().tok_decode(tokens, skip_special_tokens)

    return WithoutSpecialTokens


@contextmanager
def without_remarks() -> Iterator[None]:
    """Without lm-eval's advice on options that this command has not."""
    needless = (
        "`pretrained` model kwarg is not of type `str`",
        "Passed an already-initialized model through `pretrained`",
        "Custom kwargs can be passed to `--metadata`",
    )

    def other(record: logging.LogRecord) -> bool:
        return not any(remark in record.getMessage() for remark in needless)

    loggers = [logging.getLogger(f"lm_eval.{name}") for name in ("models.huggingface", "api.task")]
    for logger in loggers:
        logger.addFilter(other)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(other)
