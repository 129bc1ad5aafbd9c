"""Tokenizers of tasks: the ids are the task's, and what is decoded is what was encoded."""

import pytest
from transformers import AutoTokenizer

from milepost import tasks
from milepost.errors import UsageError
from milepost.hf.tokenizer import alphabet, bytewise, encode, of_task

WORDS = [name for name in tasks.names() if tasks.build(name).vocab_size != 256]
BYTES = [name for name in tasks.names() if name not in WORDS]

TEXTS = [
    "plain text, with  two spaces",
    "  leading and trailing  ",
    "\n\nlines\r\n\tand tabs\n",
    "emoji 🙂, a family 👩‍👩‍👧 and a flag 🇩🇪",
    "Ā Ġ Ċ ÿ are the alphabet's own characters",
    "\ufffd\ufeff\x00\x7f\x80\xad\u2028",
    "é e\u0301 ﬁ Å Å are not made one another",
    "<|endoftext|> <s> [UNK] <pad> are no tokens",
    "naïve — 東京 עברית",
    "",
]


def reloaded(tokenizer, folder):
    tokenizer.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("name", WORDS)
def test_ids_are_those_of_the_task(name, tmp_path):
    task = tasks.build(name)
    tokenizer = reloaded(of_task(task), tmp_path)
    ids = task.batch(0, "train", 0, 1).tokens[0].tolist()
    assert len(tokenizer) == task.vocab_size
    assert tokenizer(task.render(ids)) == {"input_ids": ids, "attention_mask": [1] * len(ids)}
    assert tokenizer.decode(ids) == task.render(ids)
    every = list(range(task.vocab_size))
    assert tokenizer.decode(every, skip_special_tokens=True) == " ".join(task.vocab)
    assert encode(tokenizer, "  " + "\n ".join(task.vocab)) == every


@pytest.mark.parametrize("name", BYTES)
def test_tasks_on_bytes_have_the_tokenizer_of_bytes(name):
    tokenizer = of_task(tasks.build(name))
    assert len(tokenizer) == 256
    assert tokenizer.encode("né\n") == list("né\n".encode())


def test_the_two_kinds_are_both_there():
    assert {"flip-flop", "selective-copy", "counting"} <= set(WORDS)
    assert "text" in BYTES


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_to_the_byte(text, tmp_path):
    tokenizer = reloaded(of_task(tasks.build("text")), tmp_path)
    ids = encode(tokenizer, text)
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == tokenizer.decode(ids, skip_special_tokens=True) == text


def test_each_byte_is_a_token():
    assert len(set(alphabet())) == 256
    tokenizer = bytewise()
    assert [tokenizer.token_to_id(char) for char in alphabet()] == list(range(256))


def test_bytes_that_are_not_text_are_shown_as_such():
    tokenizer = of_task(tasks.build("text"))
    assert tokenizer.decode([0xFF, 0x20, 0xE2, 0x82, 0x41]) == "\ufffd \ufffdA"


@pytest.mark.parametrize("name", [*WORDS, *BYTES])
def test_no_special_tokens_are_made_up(name, tmp_path):
    tokenizer = reloaded(of_task(tasks.build(name)), tmp_path)
    assert tokenizer.special_tokens_map == {}
    assert tokenizer.eos_token_id is tokenizer.pad_token_id is tokenizer.bos_token_id is None


def test_a_word_that_is_not_in_the_vocabulary():
    tokenizer = of_task(tasks.build("counting"))
    with pytest.raises(UsageError, match=r"unknown word 'prnt': did you mean 'print'\? valid: "):
        encode(tokenizer, "pass; prnt a")


@pytest.mark.parametrize("name", ["flip-flop", "text"])
def test_text_that_is_not_unicode(name):
    with pytest.raises(UsageError, match="half of a surrogate pair at character 2"):
        encode(of_task(tasks.build(name)), "w \udc80")
