"""RoPE with an NTK-aware base: slow pairs are slowed for longer text, fast ones hardly.

bloc97 2023, a post on Reddit (r/LocalLLaMA); written down by Peng, Quesnelle, Fan, Shippole 2023,
"YaRN: Efficient Context Window Extension of Large Language Models", arXiv 2309.00071, Sec. 3.1.
"""

from milepost.encoding import Host
from milepost.encodings.rope import Rope, check_factor
from milepost.errors import UsageError


def ntk_base(base: float, factor: float, head_dim: int) -> float:
    """b' = b · s^(D / (D − 2)): the slowest pair slows to θ / s, and the fastest stays at 1."""
    return base * factor ** (head_dim / (head_dim - 2))


class RopeNtk(Rope):
    """RoPE with θ_f = b'^(−2f/D), b' = b · s^(D / (D − 2)), s = `factor`.

    No parameters: a checkpoint trained with `rope` loads as it is. "Dynamic" NTK, which lets s
    follow the length of the text at hand, is not offered: it turns new keys by other angles than
    those in the cache, and decoding differs from the full forward.

    Options:
        factor: s, the length to reach over the length trained on.
        base: b. With factor=1 it is b' itself, as where the base is chosen by hand (Code Llama:
            1000000).
    """

    paper = "Peng et al. 2023, arXiv 2309.00071"
    changes = "rotates queries and keys, slow pairs more slowly"

    def __init__(self, host: Host, *, factor: float = 4.0, base: float = 10_000.0) -> None:
        super().__init__(host, base=base)
        check_factor(factor)
        if host.head_dim < 4:
            raise UsageError(
                f"rope-ntk slows pairs relative to the first, so head_dim must be at least 4, "
                f"got {host.head_dim}: choose another head_dim, or rope-linear"
            )
        self.base = ntk_base(base, factor, host.head_dim)
