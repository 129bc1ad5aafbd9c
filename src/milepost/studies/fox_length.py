"""FoX and stick-breaking: perplexity far past the trained length.

Lin et al., "Forgetting Transformer" (arXiv 2503.02130), sections 4.2 and 4.3: FoX has a lower loss
by position than the Transformer with RoPE within the trained length, and goes on where that fails.
Tan et al., "Scaling Stick-Breaking Attention" (arXiv 2410.17980): stick-breaking generalises to
longer contexts than it was trained on, and is better than RoPE within it.
"""

from milepost.study.language import at, by_position, by_window, prose
from milepost.study.study import PERPLEXITY, Claim, Study, Table

_LONGER = ("prose/2 T", "prose/4 T", "prose/8 T")

STUDY = Study(
    name="fox-length",
    title="FoX and stick-breaking far past the trained length",
    paper="Lin et al., Forgetting Transformer (2025); Tan et al., Stick-Breaking Attention (2024)",
    link="https://arxiv.org/abs/2503.02130",
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
            "arXiv 2503.02130, section 4.2",
            ("prose/T",),
            better=("fox",),
            worse=("rope",),
        ),
        Claim(
            "FoX goes on past the trained length, where RoPE fails",
            "arXiv 2503.02130, section 4.3",
            _LONGER,
            better=("fox",),
            worse=("rope",),
        ),
        Claim(
            "Stick-breaking is below RoPE at the trained length",
            "arXiv 2410.17980, section 4",
            ("prose/T",),
            better=("stick-breaking",),
            worse=("rope",),
        ),
        Claim(
            "Stick-breaking goes on past the trained length, where RoPE fails",
            "arXiv 2410.17980, section 4",
            _LONGER,
            better=("stick-breaking",),
            worse=("rope",),
        ),
    ),
)
