"""A tokenizer for the vocabulary of a task, as transformers and its tools want one.

    words   a task's printable names, split at white space:   "w 0 i 1" -> w, 0, i, 1
    bytes   where the vocabulary is the 256 bytes: the id of a byte is its value, and any text
            comes back as it was
    others  of the task `text`, where it has them: the tokenizer that it uses itself

Which of them follows from the task itself. No special tokens are made up: what was never
trained cannot be said. So there is no end of text, and generation ends where it is told to; there
is no padding token, and prompts of different lengths are padded by hand, with any id and a mask.
"""

from collections.abc import Collection
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from milepost.corpus.tokens import alphabet
from milepost.errors import UsageError, unknown
from milepost.tasks.task import Task
from milepost.tasks.text import BYTES, Text


def of_task(task: Task) -> PreTrainedTokenizerFast:
    """The tokenizer whose ids are the task's."""
    if isinstance(task, Text) and task.tokenizer is not None:
        backend = task.tokenizer
    else:
        backend = bytewise() if task.vocab == BYTES else wordwise(task.vocab)
    # names such as "." stand alone: nothing may be moved up to the word before
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )


def wordwise(names: tuple[str, ...]) -> Tokenizer:
    """Each name is a token. Another word is an error: there is no token for the unknown."""
    backend = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return backend


def bytewise() -> Tokenizer:
    """Each byte of the text in UTF-8 is a token: BPE without merges over GPT-2's alphabet."""
    backend = Tokenizer(models.BPE({char: byte for byte, char in enumerate(alphabet())}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def encode(tokenizer: Any, text: str, **options: Any) -> list[int]:
    """The text's token ids, by any tokenizer.

    Raises:
        UsageError: the tokenizer has words only, and one of the text is not among them.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the text must be Unicode, got half of a surrogate pair at character {error.start}: "
            f"read it as UTF-8"
        ) from error
    if (known := words_of(tokenizer)) is not None:
        for word in text.split():
            if word not in known:
                raise unknown("word", word, known)
    return list(tokenizer.encode(text, **options))


def words_of(tokenizer: Any) -> Collection[str] | None:
    """The words of a tokenizer that has words only, and no token for others; None for others."""
    model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    if not isinstance(model, models.WordLevel):
        return None
    known: Collection[str] = tokenizer.get_vocab()
    return None if model.unk_token in known else known
