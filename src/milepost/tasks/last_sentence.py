"""Word counting in the last sentence: how often it has a word that those before it have too.

A text is n sentences of words, each ended by a full stop, and then a question that one token
answers, 0 to `most`:

    key bell . bell key bell . how many bell in the last sentence ? 2

n ~ U{⌈sentences / 2⌉..sentences}, a sentence has U{most..words} words, and the word asked for
stands in U{0..most} places of it, uniform among all; the other words are uniform. That is so in
every sentence, so that only where the last one begins tells which to count in.

Source: Golovneva et al. 2024 (CoPE, arXiv:2405.18719), Tables 1 and 6: two prompts, of two
sentences of Alice in Wonderland each, at which GPT-4 and Llama 2 70B Chat fail. It trains no model
on this. `trials` has those two prompts, and others of English-like sentences whose truth is known;
`score` asks them of any model that writes text. The task is there to train a model from nothing.

Where the paper leaves room, and where we differ:
- Its evidence is an answer or two to each prompt. Here as many as one likes, and each share with a
  95 % interval (Wilson 1927), which takes answers to one prompt for independent.
- It samples: GPT-4 at temperature 1, top-p 1, Llama 2 at 0.6, 0.9. Here `generate` decides.
- In both prompts the truth is 0. In ours it is uniform from 0 to `most`, and every sentence before
  the last has the word, so that the count over all of them is never the truth.
- A person read the answers. Here `said` does, by the rules that it states.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch

from milepost.errors import UsageError
from milepost.shapes import check_tensor, shape
from milepost.tasks.passkey import Decode, Encode, Generate, Score
from milepost.tasks.task import KEY_LIMIT, Batch, Task, TestSet, is_whole, keyed_generator

ALICE = (
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having "
    "nothing to do: once or twice she had peeped into the book her sister was reading, but it had "
    'no pictures or conversations in it, "and what is the use of a book," thought Alice "without '
    'pictures or conversations?"\n\n'
    "So she was considering in her own mind (as well as she could, for the hot day made her feel "
    "very sleepy and stupid), whether the pleasure of making a daisy-chain would be worth the "
    "trouble of getting up and picking the daisies, when suddenly a White Rabbit with pink eyes "
    "ran close by her."
)
QUESTION = 'Now, tell me how many times word "{word}" is mentioned in the last sentence.'
BEGINNING = 'The word "{word}" is mentioned'
"""How most answers of Table 6 begin."""

NAMES = ("Ada", "Alice", "Ben", "Clara", "Daniel", "Emma", "Frank", "Grace", "Henry", "Iris")
THINGS = ("bell", "book", "boat", "clock", "garden", "key", "lamp", "letter", "river", "window")
VERBS = ("saw", "forgot", "asked about", "walked past", "dreamt of", "looked for", "spoke of")
ENDINGS = ("", "", "", " in the morning", " with great care", " for what seemed a long time")
JOINS = (", and ", ", while ", ", but ", "; ")


@dataclass(frozen=True)
class Trial:
    """A prompt, and how often its last sentence has the word; `everywhere` is that of all."""

    prompt: str
    word: str
    truth: int
    everywhere: int
    group: str


def question(text: str, word: str) -> str:
    """The paper's prompt."""
    return f"{text}\n\n{QUESTION.format(word=word)}"


TABLE_6 = tuple(
    Trial(question(ALICE, word), word, 0, 2, "CoPE, Table 6") for word in ("Alice", "book")
)


def trials(
    sentences: Iterable[int] = (2, 4, 8), *, count: int = 20, most: int = 3, seed: int = 0
) -> list[Trial]:
    """The two prompts of Table 6, and `count` of so many sentences each.

    A prompt depends on nothing but its place, the number of sentences, `most` and the seed; fewer
    are the first of more.

    Args:
        sentences: in a prompt, at least 2.
        count: of the prompts of each number of sentences.
        most: the word stands in a sentence at most so often; a sentence has `most` to 2 `most`
            clauses.
        seed: of all that is drawn.
    """
    for argument, value, least in (("count", count, 1), ("most", most, 1), ("seed", seed, 0)):
        if not is_whole(value, least) or value >= KEY_LIMIT:
            raise UsageError(
                f"{argument} must be an int from {least} to {KEY_LIMIT - 1}, got {value!r}"
            )
    found = list(TABLE_6)
    for many in sentences:
        if not is_whole(many, 2):
            raise UsageError(f"sentences must be ints of at least 2, got {many!r}")
        for place in range(count):
            rng = keyed_generator("last-sentence", seed, f"trials {many} {most}", place)
            word = str(rng.choice(NAMES + THINGS))
            counts = [*rng.integers(1, most + 1, many - 1), rng.integers(most + 1)]
            text = " ".join(sentence(rng, word, int(times), most) for times in counts)
            truth, everywhere = int(counts[-1]), int(sum(counts))
            found.append(Trial(question(text, word), word, truth, everywhere, f"{many} sentences"))
    return found


def begun(trial: Trial) -> Trial:
    """The same with the beginning of an answer, for a model that goes on rather than answers."""
    beginning = BEGINNING.format(word=trial.word)
    return replace(trial, prompt=f"{trial.prompt}\n\n{beginning}")


def sentence(rng: np.random.Generator, word: str, times: int, most: int) -> str:
    """Of `most` to 2 `most` clauses, each with a name and a thing, `times` of which are `word`."""
    clauses = int(rng.integers(most, 2 * most + 1))
    chosen = set(rng.permutation(clauses)[:times].tolist())

    def one_of(words: tuple[str, ...], clause: int) -> str:
        if word in words and clause in chosen:
            return word
        return str(rng.choice([other for other in words if other != word]))

    text = ""
    for clause in range(clauses):
        text += str(rng.choice(JOINS)) if clause else ""
        text += f"{one_of(NAMES, clause)} {rng.choice(VERBS)} the {one_of(THINGS, clause)}"
        text += str(rng.choice(ENDINGS))
    return f"{text}."


SMALL_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
NUMBERS = {
    **{word: number for number, word in enumerate(SMALL_NUMBERS.split())},
    **{"single": 1, "once": 1, "twice": 2, "thrice": 3, "never": 0, "none": 0, "nowhere": 0},
}
NEGATIONS = ("no", "not", "cannot")
MENTION = re.compile(
    r"(mention|appear|occur|instance|contain|includ|present|use)[a-z]*|times?|found|there|in|at"
)
POINTERS = ("the", "this", "that", "last", "first", "second", "no", "any", "each", "every", "which")


def said(answer: str) -> int | None:
    """The first number in an answer, or None where there is none.

    - What stands between double quotes is not read: it is quoted from the prompt.
    - Numbers are 2, "two" (to twenty), "once", "twice", "thrice", "a single time"; and, as 0,
      "never", "none", "nowhere", and "no", "not", "cannot" or "...n't" with a word of `MENTION`
      among the next three ("is not mentioned", "doesn't appear", "no times").
    - Not a number: "1st", "first", "2.5", and "one" after a word that points ("the last one").
    - Later numbers are not looked at, so a model that corrects itself has said the first.
    """
    text = re.sub(r'["“”][^"“”]*["“”]', " ", answer.lower().replace("’", "'"))
    words = [word.rstrip(".,") for word in re.findall(r"\d[\d.,]*\w*|[a-z]+(?:'[a-z]+)?", text)]
    for place, word in enumerate(words):
        if re.fullmatch("[0-9]+", word):
            return int(word)
        pointed = word == "one" and place > 0 and words[place - 1] in POINTERS
        if word in NUMBERS and not pointed:
            return NUMBERS[word]
        denied = word in NEGATIONS or word.endswith("n't")
        if denied and any(MENTION.fullmatch(after) for after in words[place + 1 : place + 4]):
            return 0
    return None


@dataclass(frozen=True)
class Answer:
    """What a model wrote after a prompt, and the number that was read in it."""

    trial: Trial
    text: str
    said: int | None

    @property
    def right(self) -> bool:
        """Whether the number is the truth."""
        return self.said == self.trial.truth


def answers(
    asked: Iterable[Trial],
    generate: Generate,
    *,
    encode: Encode,
    decode: Decode,
    samples: int = 1,
    count: int = 40,
    device: str | torch.device = "cpu",
) -> Iterator[Answer]:
    """Ask each prompt `samples` times; arguments as those of `score`."""
    if not is_whole(samples, 1):
        raise UsageError(f"samples must be an int of at least 1, got {samples!r}")
    for trial in asked:
        tokens = torch.tensor([list(encode(trial.prompt))], device=device)
        for _ in range(samples):
            new = generate(tokens, count)
            check_tensor("what generate returns", new)
            if new.ndim != 2 or len(new) != 1 or new.shape[1] > count:
                raise UsageError(
                    f"generate must return the new tokens alone, (1, at most {count}), got "
                    f"{shape(new)}: cut off the prompt"
                )
            text = decode(new[0].tolist())
            yield Answer(trial, text, said(text))


def tally(found: Iterable[Answer]) -> dict[str, Score]:
    """How many answers are right, by group of prompts."""
    scores: dict[str, Score] = {}
    for answer in found:
        group = answer.trial.group
        scores[group] = scores.get(group, Score(0, 0)) + Score(int(answer.right), 1)
    return scores


def score(
    asked: Iterable[Trial],
    generate: Generate,
    *,
    encode: Encode,
    decode: Decode,
    samples: int = 1,
    count: int = 40,
    device: str | torch.device = "cpu",
) -> dict[str, Score]:
    """How often the number that a model says first is the truth, by group of prompts.

    Args:
        asked: from `trials`.
        generate: from a prompt's tokens and a count to new tokens, greedily or by drawing:
            `functools.partial(milepost.generate.generate, model, temperature=0.6)`, for example.
        encode: from text to token ids. Of a model that was trained to chat, with its template.
        decode: from token ids to text.
        samples: answers to each prompt; more than one says something only where they are drawn.
        count: how many tokens an answer has at most.
        device: where the model is.
    """
    return tally(
        answers(
            asked,
            generate,
            encode=encode,
            decode=decode,
            samples=samples,
            count=count,
            device=device,
        )
    )


PAD, STOP = 0, 1
FRAME = ("<pad>", ".", "how", "many", "in", "the", "last", "sentence", "?")
HOW, MANY, IN, THE, LAST, SENTENCE, MARK = range(2, 9)
WORDS = tuple(word for pair in zip(THINGS, NAMES, strict=True) for word in pair)
MOST = 9


@dataclass(frozen=True)
class LastSentence(Task):
    """Count a word in the last sentence, in words.

    Settings: `sentences` and `words`, the most of a text and of a sentence; `vocabulary`, how many
    words there are; `most`, how often a sentence has the word at most. No paper has numbers for
    them.

    An example, with the scored answer marked:

        key bell . bell key bell . how many bell in the last sentence ? 2
                                                                        ^
    """

    name: ClassVar[str] = "last-sentence"
    paper: ClassVar[str] = "CoPE (Golovneva et al. 2024, arXiv:2405.18719), Tables 1 and 6"
    headline: ClassVar[Literal["token", "sequence", "last"]] = "token"

    sentences: int = 16
    words: int = 24
    vocabulary: int = 16
    most: int = 4

    def __post_init__(self) -> None:
        """Reject settings with no sentence to ignore, or no room for the word."""
        self.expect("sentences", is_whole(self.sentences, 2), "an int of at least 2")
        some = is_whole(self.most, 1) and self.most <= MOST
        self.expect("most", some, f"an int from 1 to {MOST}")
        room = is_whole(self.words, self.most)
        self.expect("words", room, f"an int of at least {self.most}, the setting 'most'")
        known = is_whole(self.vocabulary, 2) and self.vocabulary <= len(WORDS)
        self.expect("vocabulary", known, f"an int from 2 to {len(WORDS)}")

    @property
    def vocab(self) -> tuple[str, ...]:
        """Padding, the full stop, the question, the answers and the words."""
        return (*FRAME, *map(str, range(self.most + 1)), *WORDS[: self.vocabulary])

    @property
    def max_length(self) -> int:
        """That of the most sentences of the most words, with the question and the answer."""
        return self.sentences * (self.words + 1) + 9

    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw the sentences and the word, put it in its places, and ask."""
        zero, first = len(FRAME), len(FRAME) + self.most + 1
        shape = (size, self.sentences)
        sentences = rng.integers((self.sentences + 1) // 2, self.sentences + 1, size)
        words = rng.integers(self.most, self.words + 1, shape)
        times = rng.integers(self.most + 1, size=shape)
        asked = rng.integers(self.vocabulary, size=size)
        others = rng.integers(1, self.vocabulary, (*shape, self.words))
        # the asked word's places in a sentence: those of the `times` lowest numbers of its words
        place = np.arange(self.words + 1)
        numbers = rng.random((*shape, self.words))
        numbers[place[:-1] >= words[..., None]] = 2.0
        is_asked = numbers.argsort(axis=-1).argsort(axis=-1) < times[..., None]
        word = (asked[:, None, None] + np.where(is_asked, 0, others)) % self.vocabulary
        text = np.concatenate([first + word, np.full((*shape, 1), PAD)], axis=-1)
        text[place > words[..., None]] = PAD
        text[place == words[..., None]] = STOP
        text[np.arange(self.sentences) >= sentences[:, None]] = PAD
        answer = times[np.arange(size), sentences - 1]
        ends = np.empty((size, 9), dtype=np.int64)
        ends[:] = (HOW, MANY, PAD, IN, THE, LAST, SENTENCE, MARK, PAD)
        ends[:, 2], ends[:, -1] = first + asked, zero + answer
        return packed(np.concatenate([text.reshape(size, -1), ends], axis=1))

    def test_sets(self) -> dict[str, TestSet]:
        """As trained, then longer sentences, then more of them."""
        return {
            "in": self.altered(1000, "as in training"),
            "longer sentences": self.altered(
                1000, "sentences of up to twice the words", words=2 * self.words
            ),
            "more sentences": self.altered(
                1000, "up to twice the sentences", sentences=2 * self.sentences
            ),
            "sentences x4": self.altered(
                1000, "up to four times the sentences", sentences=4 * self.sentences
            ),
        }


def packed(words: np.ndarray) -> Batch:
    """The words (B, W) without the padding among them, which moves behind the scored answer."""
    kept = words != PAD
    lengths = kept.sum(axis=1)
    within = np.arange(lengths.max()) < lengths[:, None]
    tokens = np.full(within.shape, PAD, dtype=np.int64)
    tokens[within] = words[kept]
    scored = np.arange(lengths.max()) == lengths[:, None] - 1
    return Batch(torch.from_numpy(tokens), torch.from_numpy(scored))
