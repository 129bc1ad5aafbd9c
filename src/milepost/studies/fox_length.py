"""FoX and stick-breaking: perplexity far past the trained length.

Lin et al., "Forgetting Transformer" (arXiv 2503.02130), compare FoX with RoPE within the trained
length and past it. Tan et al., "Scaling Stick-Breaking Attention" (arXiv 2410.17980), do so with
stick-breaking in place of softmax and RoPE. Neither's figures are repeated: what is asked here is
which way these comparisons come out.
"""

from milepost.study.language import at, by_position, by_window, prose
from milepost.study.study import PERPLEXITY, Claim, Study, Table

_LONGER = ("prose/2 T", "prose/4 T", "prose/8 T")

STUDY = Study(
    name="fox-length",
    title="FoX and stick-breaking far past the trained length",
    paper="Lin et al., Forgetting Transformer (2025); Tan et al., Stick-Breaking Attention (2024)",
    link="https://arxiv.org/abs/2503.02130",
    minutes=10,
    rows=(
        "none",
        "rope",
        "alibi",
        "t5",
        "fire",
        "cope",
        "fox",
        "fox+rope",
        "stick-breaking",
        "tape",
    ),
    arms=(prose(),),
    tables=(
        Table(
            "prose",
            "Prose",
            "perplexity of a token by window",
            tuple(at(factor) for factor in (1, 2, 4, 8)),
            PERPLEXITY,
        ),
    ),
    pictures=(by_window(), by_position()),
    claims=(
        Claim(
            "FoX is below RoPE at the trained length",
            "arXiv 2503.02130, on language modelling",
            ("prose/T",),
            better=("fox",),
            worse=("rope",),
        ),
        Claim(
            "... and past the trained length, where RoPE fails",
            "arXiv 2503.02130, on length extrapolation",
            _LONGER,
            better=("fox",),
            worse=("rope",),
        ),
        Claim(
            "Stick-breaking is no worse than RoPE at the trained length",
            "arXiv 2410.17980, on language modelling",
            ("prose/T",),
            better=("stick-breaking",),
            worse=("rope",),
            no_worse=True,
        ),
        Claim(
            "... and past the trained length, where RoPE fails",
            "arXiv 2410.17980, on length extrapolation",
            _LONGER,
            better=("stick-breaking",),
            worse=("rope",),
        ),
    ),
)
