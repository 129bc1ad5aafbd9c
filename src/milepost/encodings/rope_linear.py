"""RoPE with position interpolation: positions are divided, to fit a longer text in known angles.

Chen, Wong, Chen, Tian 2023, "Extending Context Window of Large Language Models via Positional
Interpolation", arXiv 2306.15595, Sec. 2.3.
"""

import torch
from torch import Tensor

from milepost.encoding import Host
from milepost.encodings.rope import Rope, check_factor


class RopeLinear(Rope):
    """RoPE at position n / factor: f'(x, n) = f(x, n · L / L'), factor = L' / L.

    No parameters: a checkpoint trained with `rope` loads as it is. The paper then fine-tunes it.

    Options:
        factor: L' / L, the length to reach over the length trained on.
        base: as in `rope`.
    """

    paper = "Chen et al. 2023, arXiv 2306.15595"
    changes = "rotates queries and keys, more slowly"

    def __init__(self, host: Host, *, factor: float = 4.0, base: float = 10_000.0) -> None:
        super().__init__(host, base=base)
        check_factor(factor)
        self.factor = factor

    def frequencies(self, device: torch.device) -> Tensor:
        """θ_f / factor, (D/2,), fp64."""
        return super().frequencies(device) / self.factor
