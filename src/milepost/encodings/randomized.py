"""Randomised positions: a sequence gets a random sorted subset of the places of a longer one.

Ruoss et al. 2023, "Randomized Positional Encodings Boost Length Generalization of Transformers",
arXiv 2305.16843, Sec. 3.
"""

from typing import Any

import torch
from torch import Tensor

from milepost.encoding import Encoding, Host, Operands, Positions, length_or
from milepost.encodings.absolute import Absolute
from milepost.encodings.rope import Rope
from milepost.encodings.sinusoidal import Sinusoidal
from milepost.errors import UsageError, unknown


def draw(count: int | Tensor, length: int, device: torch.device | None = None) -> Tensor:
    """`count` of 0 … length − 1, sorted, each subset as likely, then `length` to fill (length,).

    It does not wait for the device to know a `count` that is a tensor.
    """
    order = torch.randperm(length, device=device)
    unchosen = torch.arange(length, device=device) >= count
    return order.masked_fill(unchosen, length).sort().values


class Randomized(Encoding):
    """Token i stands at r_i, where r_0 < r_1 < … is a random subset of 0 … L − 1.

    In training a subset is drawn for each forward, from torch's global generator of the device:
    as many places as the longest sequence has tokens, shared by the rows and, unlike in the
    authors' code for RoPE, by the layers.

    The paper redraws at test too. Then a token that has been decoded would stand elsewhere at
    the next step, and cached keys with it, so that decoding and the full forward disagree (as in
    TAPE's baseline). Here evaluation takes one subset for `max_length` tokens, drawn when the model
    is built and saved with it, and a sequence of N tokens gets its first N places. The gaps are
    thus about L / max_length wide however short the sequence is, where the paper's are L / N;
    results depend on that draw, not on the call.

    Options:
        over: the encoding that gets these positions: "rope", "sinusoidal" or "absolute".
        length: L; four times the model's `max_length` if None. The paper takes 2048 to reach 500.
    """

    paper = "Ruoss et al. 2023, arXiv 2305.16843"
    changes = "replaces positions by a random sorted subset of a longer range"
    variants = ({"over": "sinusoidal"}, {"over": "absolute", "length": 50})

    def __init__(self, host: Host, *, over: str = "rope", length: int | None = None) -> None:
        super().__init__(host)
        self.length = length_or(4 * host.max_length, "length", length)
        if self.length < host.max_length:
            raise UsageError(
                f"length must be at least the model's max_length, {host.max_length}, got "
                f"{self.length}: positions are drawn from so many without repetition"
            )
        self.inner: Encoding
        if over == "rope":
            self.inner = Rope.of(host)
        elif over == "sinusoidal":
            self.inner = Sinusoidal(host)
        elif over == "absolute":
            self.inner = Absolute(host, length=self.length)
        else:
            raise unknown("over", over, ("rope", "sinusoidal", "absolute"))
        self.fixed: Tensor
        self.register_buffer("fixed", draw(host.max_length, self.length)[: host.max_length])

    def places(self, positions: Positions) -> Tensor:
        """R, as long as the longest sequence of the call or longer."""
        if not self.training:
            known = self.host.max_length
            if positions.bound > known and (last := int(positions.index.max())) >= known:
                raise UsageError(
                    f"randomized positions were drawn for max_length = {known} tokens, got a token "
                    f"at position {last}: build the model with max_length of {last + 1} or more"
                )
            return self.fixed
        if positions.first:
            raise UsageError(
                f"randomized positions are drawn anew at each call in training mode, and the "
                f"{positions.first} tokens in the cache have others: call eval() on the model"
            )
        if positions.length > self.length:
            raise UsageError(
                f"randomized positions are drawn from length = {self.length}, got "
                f"{positions.length} tokens: raise the option length"
            )
        return draw(positions.index.max() + 1, self.length, positions.index.device)

    def begin(self, x: Tensor, positions: Positions) -> tuple[Tensor, Any]:
        """Renumber the tokens for the encoding within."""
        return self.inner.begin(x, positions.renumbered(self.places(positions)[positions.index]))

    def encode(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        x: Tensor,
        positions: Positions,
        state: Any,
    ) -> Operands:
        """The encoding within, whose positions are in its state."""
        return self.inner.encode(query, key, value, x=x, positions=positions, state=state)
