"""Learned absolute positions: a vector for each place in the sequence, added to the embedding.

Gehring et al. 2017, arXiv 1705.03122; as GPT-2 uses it, Radford et al. 2019, "Language Models are
Unsupervised Multitask Learners".
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.encoding import Encoding, Host, Positions, length_or
from milepost.errors import UsageError


class Absolute(Encoding):
    """x_i ← x_i + p_i, p a table of `length` vectors.

    Past the table's end nothing has been learned, and tokens there are refused. Rows start at
    N(0, 1/dim), as in CoPE's released code; OpenAI's GPT-2 starts at N(0, 0.01²), and its port in
    Hugging Face transformers at N(0, 0.02²).

    Options:
        length: rows of the table; the model's `max_length` if None.
    """

    paper = "Gehring et al. 2017, arXiv 1705.03122"
    changes = "adds a learned vector per position to the embedding"
    variants = ({"length": 100},)

    def __init__(self, host: Host, *, length: int | None = None) -> None:
        super().__init__(host)
        rows = length_or(host.max_length, "length", length)
        self.table = nn.Parameter(torch.randn(rows, host.dim) * host.dim**-0.5)

    def begin(self, x: Tensor, positions: Positions) -> tuple[Tensor, Any]:
        """Add the rows of the tokens' places."""
        rows = self.table.shape[0]
        # the bound is known without waiting for the device; packed documents may be shorter
        if positions.bound > rows and (last := int(positions.index.max())) >= rows:
            raise UsageError(
                f"absolute positions were built for {rows} tokens, got a token at position {last}: "
                f"build the model with max_length (or the option length) of {last + 1} or more"
            )
        return x + F.embedding(positions.index, self.table), None
