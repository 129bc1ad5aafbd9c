"""Generation with a cache gives what repeated full forwards give."""

import pytest
import torch

from milepost.errors import UsageError
from milepost.generate import generate
from milepost.model import Config, Decoder


@pytest.fixture(params=["cope", "fox", "tape"])
def model(request):
    torch.manual_seed(0)
    config = Config(vocab_size=11, dim=16, layers=2, heads=2, max_length=32, encoding=request.param)
    return Decoder(config).eval()


@pytest.fixture
def tokens():
    return torch.randint(11, (2, 5), generator=torch.Generator().manual_seed(0))


def test_greedy_decoding_is_the_argmax_of_the_full_forward(model, tokens):
    new, text = generate(model, tokens, 6), tokens
    for _ in range(6):
        text = torch.cat((text, model(text)[:, -1:].argmax(-1)), 1)
    assert torch.equal(new, text[:, 5:])


def test_a_padded_prompt_continues_as_it_does_alone(model, tokens):
    padded = generate(model, tokens, 4, padding=torch.tensor([0, 3]))
    assert torch.equal(padded[1:], generate(model, tokens[1:, 3:], 4))


def test_samples_follow_the_distribution(model, tokens):
    many = tokens[:1].expand(4000, -1)
    drawn = generate(model, many, 1, temperature=2.0, generator=torch.Generator().manual_seed(0))
    chances = (model(tokens[:1])[0, -1] / 2).softmax(-1).detach()
    shares = torch.bincount(drawn[:, 0], minlength=11) / 4000
    spread = (chances * (1 - chances) / 4000).sqrt()
    assert ((shares - chances).abs() < 5 * spread).all()


def test_nothing_is_made_of_nothing(model, tokens):
    assert generate(model, tokens, 0).shape == (2, 0)
    with pytest.raises(UsageError, match="at least 1"):
        generate(model, tokens[:, :0], 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": -1}, "must not be negative"),
        ({"temperature": float("nan")}, "temperature must be a finite number, got nan"),
        ({"temperature": "hot"}, "temperature must be a finite number, got 'hot'"),
        ({"count": -1}, "must not be negative"),
        ({"count": 2.5}, "count must be a whole number, got 2.5"),
        ({"count": True}, "count must be a whole number, got True"),
        ({"tokens": [[1, 2]]}, "tokens must be a tensor, got list"),
    ],
)
def test_mistakes_are_refused(model, tokens, wrong, message):
    with pytest.raises(UsageError, match=message):
        generate(**{"model": model, "tokens": tokens, "count": 3, **wrong})
