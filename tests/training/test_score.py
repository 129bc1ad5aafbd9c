"""Error rates of models whose answers are known."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from milepost.tasks.task import Batch
from milepost.training.score import error_rates

CPU = torch.device("cpu")


class Says(nn.Module):
    """Whatever it reads, it says these tokens."""

    def __init__(self, answers: list[list[int]]) -> None:
        super().__init__()
        self.answers = torch.tensor(answers)

    def forward(self, tokens: Tensor) -> Tensor:
        assert not self.training
        assert tokens.shape == self.answers.shape
        return one_hot(self.answers, 10).float()


def batch() -> Batch:
    tokens = torch.tensor([[0, 1, 2, 3], [0, 4, 5, 6], [0, 7, 8, 9]])
    scored = torch.tensor([[0, 1, 0, 1], [0, 1, 1, 0], [0, 0, 1, 0]]).bool()
    return Batch(tokens, scored)


@pytest.mark.parametrize(
    ("answers", "token", "sequence", "last"),
    [
        ([[1, 2, 3], [4, 5, 6], [7, 8, 9]], 0, 0, 0),
        ([[1, 0, 3], [4, 5, 0], [0, 8, 0]], 0, 0, 0),  # wrong only where nobody asks
        ([[0, 2, 3], [4, 5, 6], [7, 8, 9]], 1 / 5, 1 / 3, 0),  # not the last
        ([[1, 2, 0], [4, 5, 6], [7, 8, 9]], 1 / 5, 1 / 3, 1 / 3),
        ([[0, 2, 0], [4, 5, 6], [7, 8, 9]], 2 / 5, 1 / 3, 1 / 3),  # one sequence, twice wrong
        ([[1, 2, 3], [4, 0, 6], [7, 0, 9]], 2 / 5, 2 / 3, 2 / 3),
        ([[0, 0, 0], [0, 0, 0], [0, 0, 0]], 1, 1, 1),
    ],
)
def test_the_three_errors(
    answers: list[list[int]], token: float, sequence: float, last: float
) -> None:
    rates = error_rates(Says(answers), [batch()], CPU)
    expected = {"token": token, "sequence": sequence, "last": last, "sequences": 3, "tokens": 5}
    assert rates == pytest.approx(expected)


def test_a_sequence_of_which_nothing_is_asked_does_not_count() -> None:
    asked = batch()
    asked.scored[2] = False
    rates = error_rates(Says([[0, 2, 3], [4, 5, 6], [0, 0, 0]]), [asked], CPU)
    assert rates == {"token": 1 / 4, "sequence": 1 / 2, "last": 0, "sequences": 2, "tokens": 4}


def test_rates_are_over_all_batches() -> None:
    right = Says([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    asked = batch()
    wrong = Batch(torch.where(asked.scored, 0, asked.tokens), asked.scored)
    rates = error_rates(right, [asked, wrong, asked], CPU)
    assert rates["token"] == pytest.approx(1 / 3)
    assert (rates["sequences"], rates["tokens"]) == (9, 15)


@pytest.mark.parametrize("training", [True, False])
def test_mode_and_randomness_are_as_before(training: bool) -> None:
    class Noisy(Says):
        def forward(self, tokens: Tensor) -> Tensor:
            return super().forward(tokens) + 0.1 * torch.rand(1)

    model = Noisy([[1, 2, 3], [4, 5, 6], [7, 8, 9]]).train(training)
    before = torch.get_rng_state()
    error_rates(model, [batch()], CPU)
    assert model.training is training
    assert torch.equal(torch.get_rng_state(), before)
