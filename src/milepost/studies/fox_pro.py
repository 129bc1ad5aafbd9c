"""FoX: what each part of the Pro block is worth.

Lin et al., "Forgetting Transformer" (arXiv 2503.02130): the Pro block adds to a Llama block a norm
of queries and keys, a token shift of keys and values, a norm of each head's output and an output
gate. Here each is added alone to the Llama block, and taken alone from the whole, for FoX; the two
blocks also stand with RoPE.
"""

from collections.abc import Mapping

from milepost import presets
from milepost.study.language import at, by_window, prose
from milepost.study.study import PERPLEXITY, Claim, Row, Study, Table

PARTS = {
    "QK-norm": "qk_norm",
    "KV shift": "kv_shift",
    "output norm": "output_norm",
    "output gate": "output_gate",
}
_BLOCK = {name: presets.LLAMA[name] for name in ("mlp", "norm", "tied", "bias")}
_ALL = dict.fromkeys(PARTS.values(), True)


def _row(name: str, parts: Mapping[str, bool], encoding: str = "fox") -> Row:
    return Row(name, encoding, model={**_BLOCK, **parts})


STUDY = Study(
    name="fox-pro",
    title="What each part of the FoX Pro block is worth",
    paper="Lin et al., Forgetting Transformer (2025)",
    link="https://arxiv.org/abs/2503.02130",
    minutes=18,
    rows=(
        _row("rope, Llama block", {}, "rope"),
        _row("rope, Pro block", _ALL, "rope"),
        _row("fox, Llama block", {}),
        *(_row(f"fox, with {name}", {part: True}) for name, part in PARTS.items()),
        *(_row(f"fox, Pro without {name}", {**_ALL, part: False}) for name, part in PARTS.items()),
        _row("fox, Pro block", _ALL),
    ),
    arms=(prose(),),
    tables=(
        Table(
            "prose",
            "Prose",
            "perplexity of a token by window",
            tuple(at(factor) for factor in (1, 2, 4)),
            PERPLEXITY,
        ),
    ),
    pictures=(by_window(),),
    claims=(
        Claim(
            "The Pro block is better than the Llama block, with FoX",
            "arXiv 2503.02130",
            ("prose/T",),
            better=("fox, Pro block",),
            worse=("fox, Llama block",),
        ),
        Claim(
            "... and with RoPE",
            "arXiv 2503.02130",
            ("prose/T",),
            better=("rope, Pro block",),
            worse=("rope, Llama block",),
        ),
        Claim(
            "FoX is better than RoPE in the Pro block",
            "arXiv 2503.02130",
            ("prose/T",),
            better=("fox, Pro block",),
            worse=("rope, Pro block",),
        ),
        Claim(
            "... and in the Llama block",
            "arXiv 2503.02130",
            ("prose/T",),
            better=("fox, Llama block",),
            worse=("rope, Llama block",),
        ),
    ),
)
