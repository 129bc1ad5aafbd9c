"""Small models of every encoding, whose weights are shaken so that nothing stays at zero.

Every encoding that is registered, and each set of options in its `variants`, is among them: nothing
here has to be told of a new one.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from milepost import encoding
from milepost.look import Layer, Subject, of_text
from milepost.model import Config, Decoder

VOCABULARY = 13
LENGTH = 18
LOWER = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()


def cases() -> list[Any]:
    found = []
    for name in encoding.names():
        for options in ({}, *encoding.find(name).variants):
            label = " ".join([name, *(f"{k}={v}" for k, v in options.items())])
            found.append(pytest.param(name, options, id=label))
    return found


every_encoding = pytest.mark.parametrize(("name", "options"), cases())


def make(name: str, options: dict[str, Any] | None = None, **settings: Any) -> Decoder:
    torch.manual_seed(0)
    config = Config(
        **{
            "vocab_size": VOCABULARY,
            "dim": 16,
            "layers": 3,
            "heads": 4,
            "key_heads": 2,
            "max_length": 2 * LENGTH,
            "encoding": name,
            "encoding_options": options or {},
            **settings,
        }
    )
    model = Decoder(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def drawn() -> torch.Tensor:
    """Some tokens."""
    return torch.randint(VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(1))


def subject(
    name: str,
    options: dict[str, Any] | None = None,
    texts: Sequence[str] = "I saw 3 cats. \nTwo",
    **settings: Any,
) -> Subject:
    """What a small model does with the texts."""
    return of_text(name, make(name, options, **settings), drawn()[: len(texts)], texts)


def pairs(layer: Layer, window: int | None = None) -> Iterator[tuple[int, int]]:
    """Query and key of all pairs that are seen."""
    length = layer.output.shape[1]
    itself = layer.op != "stick_breaking" or layer["attend_current"]
    for i in range(length):
        for j in range(0 if window is None else max(0, i - window + 1), i + itself):
            yield i, j
