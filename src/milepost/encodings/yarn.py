"""YaRN: RoPE whose slow pairs are interpolated and fast ones kept, and sharper attention.

Peng, Quesnelle, Fan, Shippole 2023, "YaRN: Efficient Context Window Extension of Large Language
Models", arXiv 2309.00071, Sec. 3.2 ("NTK-by-parts") and 3.4 (temperature).
"""

import math
from typing import Any

import torch
from torch import Tensor

from milepost.encoding import Host, Positions, length_or
from milepost.encodings.rope import Rope, check_factor
from milepost.errors import UsageError, unknown


def ramp_over_rotations(frequencies: Tensor, length: int, slow: float, fast: float) -> Tensor:
    """γ(r_f), r_f = length · θ_f / 2π: 0 up to `slow` turns within the length, 1 from `fast` on."""
    turns = length * frequencies / (2 * math.pi)
    return ((turns - slow) / (fast - slow)).clamp(0, 1)


def ramp_over_dimensions(
    frequencies: Tensor, length: int, slow: float, fast: float, base: float
) -> Tensor:
    """The released code's γ: linear in f, between the whole f around r_f = `fast` and `slow`."""
    pairs = frequencies.shape[0]

    def pair(turns: float) -> float:
        return pairs * math.log(length / (turns * 2 * math.pi)) / math.log(base)

    first = max(math.floor(pair(fast)), 0)
    last = min(math.ceil(pair(slow)), 2 * pairs - 1)
    f = torch.arange(pairs, dtype=frequencies.dtype, device=frequencies.device)
    return 1 - ((f - first) / max(last - first, 0.001)).clamp(0, 1)


class Yarn(Rope):
    """RoPE with θ'_f = (1 − γ_f) θ_f / s + γ_f θ_f, and logits times (0.1 ln s + 1)².

    γ_f = clamp((r_f − β_slow) / (β_fast − β_slow), 0, 1), where r_f = L θ_f / 2π is how often pair
    f turns within the length L that the model was trained on: pairs that turn often keep their
    speed, and those that never turn round are interpolated. The factor on the logits, 1/t in the
    paper, is put on cos and sin, as its square root on queries and on keys.

    Published code (the authors', Hugging Face transformers and vLLM) ramps otherwise than the
    paper's equation: linearly in f, not in r_f. That is `ramp="dimensions"`.

    No parameters: a checkpoint trained with `rope` loads as it is.

    Options:
        factor: s, the length to reach over the length trained on.
        original_length: L; if None `max_length` / factor, which makes the model's `max_length` the
            length to reach.
        beta_fast, beta_slow: turns from which on a pair is kept, and up to which interpolated; the
            paper's β and α.
        ramp: "rotations" (the paper) or "dimensions" (the code).
        base: as in `rope`.
    """

    paper = "Peng et al. 2023, arXiv 2309.00071"
    changes = "rotates queries and keys, slow pairs more slowly, and sharpens"
    variants = ({"ramp": "dimensions"},)

    def __init__(
        self,
        host: Host,
        *,
        factor: float = 4.0,
        original_length: int | None = None,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        ramp: str = "rotations",
        base: float = 10_000.0,
    ) -> None:
        super().__init__(host, base=base)
        check_factor(factor)
        if not 0 < beta_slow < beta_fast:
            raise UsageError(
                f"beta_slow must be above 0 and below beta_fast, got beta_slow={beta_slow} and "
                f"beta_fast={beta_fast}: 1 and 32 are usual"
            )
        if ramp not in ("rotations", "dimensions"):
            raise unknown("ramp", ramp, ("rotations", "dimensions"))
        self.factor = factor
        self.length = length_or(
            math.ceil(host.max_length / factor), "original_length", original_length
        )
        self.beta_fast = beta_fast
        self.beta_slow = beta_slow
        self.ramp = ramp

    def frequencies(self, device: torch.device) -> Tensor:
        """θ'_f, (D/2,), fp64."""
        theta = super().frequencies(device)
        bounds = (self.length, self.beta_slow, self.beta_fast)
        if self.ramp == "rotations":
            gamma = ramp_over_rotations(theta, *bounds)
        else:
            gamma = ramp_over_dimensions(theta, *bounds, self.base)
        return (1 - gamma) * theta / self.factor + gamma * theta

    def begin(self, x: Tensor, positions: Positions) -> tuple[Tensor, Any]:
        """The state is (cos, sin), times √(1/t)."""
        x, (cos, sin) = super().begin(x, positions)
        root = 0.1 * math.log(self.factor) + 1
        return x, (cos * root, sin * root)
