"""Tables 3 and 4 of the TAPE paper: what the encodings cost.

Zhu et al., "Rethinking Addressing in Language Models via Contextualized Equivariant Positional
Encoding" (arXiv 2501.00712), section 4.4: FLOPs, MACs and parameters of the pretrained models (12
layers of 768, Llama's blocks, 32000 tokens) for one sequence of 1024 tokens (Table 3), and the time
of an attention layer over 100 inference steps on an A100 (Table 4). Here every encoding has a row.

Table 3 can be reproduced to its last digit, which says what it counts:
- "Params. (M)" is in units of 2²⁰. GFLOPs and GMACs are in units of 10⁹.
- MACs are those of linear layers, of FIRE's network and of both products of attention with all
  keys, seen or not: 160.457 for RoPE, and 1024² · 12 · (32 + 32 · 12) = 5.234 more for FIRE.
- TAPE's 20.233 more are two further products of attention, one for cosine and one for sine, each
  with its halves in duplicate (2 · 9.664), and the gate of its update twice (2 · 0.453), which the
  released code computes for cosine and for sine anew. The update's einsums are in the FLOPs (4.077)
  and missing from the MACs.
- FLOPs are twice the MACs, these einsums, and one for each number out of softmax, SiLU or ReLU.
  Norms, rotations, sums, T5's lookup and FIRE's logarithms count nothing.

Where we differ:
- We count every elementwise operation (`milepost.study.costs.count`), which matters to encodings
  that gate, add up and interpolate for each pair of tokens. Theirs are no matrix products.
- TAPE's positions go through attention beside the values, and nothing twice: its paper variant adds
  two products of attention, the released one adds one, and the last layer none.
- T5 has 32 buckets shared by the layers, where the paper's code has 64 in each.
- The paper does not say which shape Table 4 is of. At paper scale it is Table 3's, in bf16.
- At mini scale it is a smaller model on a CPU, in fp32.
"""

from importlib.util import find_spec
from pkgutil import iter_modules

from milepost.study.costs.study import Claim, CostStudy, Sizes
from milepost.study.figures import Figures
from milepost.study.study import Row

LLAMA = {"mlp": "swiglu", "norm": "rms", "tied": False, "bias": False}
PAPER = {**LLAMA, "vocab_size": 32000, "dim": 768, "layers": 12, "heads": 12, "mlp_dim": 3072}
MINI = {**LLAMA, "vocab_size": 256, "dim": 256, "layers": 4, "heads": 4, "mlp_dim": 1024}

IN_THE_PAPER = ("tape", "rope", "fire", "t5")
_TAPE = ("tape", "tape-released")


def rows() -> tuple[Row, ...]:
    """The paper's, then TAPE as released, then every other encoding there is."""
    # milepost.encoding has their names too, and with it comes torch
    found = find_spec("milepost.encodings")
    folder = (found and found.submodule_search_locations) or ()
    names = (module.name.replace("_with_", "+") for module in iter_modules(folder))
    every = (name.replace("_", "-") for name in names)
    return (
        *(Row(name, name) for name in IN_THE_PAPER),
        Row("tape-released", "tape", options={"variant": "released"}),
        *(Row(name, name) for name in sorted(every) if name not in IN_THE_PAPER),
    )


STUDY = CostStudy(
    name="tape-table3",
    title="What the encodings cost",
    paper="Zhu et al., Contextualized Equivariant Positional Encoding (2025), Tables 3 and 4",
    link="https://arxiv.org/abs/2501.00712",
    minutes=7,
    rows=rows(),
    counted=PAPER,
    counted_length=1024,
    scales={
        "mini": Sizes(model=MINI, length=512, device="cpu", seconds=1.2),
        "paper": Sizes(
            model=PAPER, length=1024, precision="bf16", calls=20, rounds=100, seconds=10.0
        ),
    },
    figures=(
        Figures(
            "FLOPs, MACs and parameters for one sequence of 1024 tokens",
            "Table 3",
            ("FLOPs, G", "MACs, G", "parameters, M of 2^20"),
            {
                "tape": (365.65, 180.69, 155.33),
                "rope": (321.10, 160.46, 154.89),
                "fire": (331.97, 165.69, 154.90),
                "t5": (321.10, 160.46, 154.90),
            },
        ),
        Figures(
            "time of an attention layer on an A100",
            "Table 4",
            ("1e-4 s", "steps per second", "× RoPE"),
            {
                "tape, fused": (2.56, 3910, 1.23),
                "tape, not fused": (5.63, 1775, 2.71),
                "rope": (2.08, 4810, 1.00),
                "fire": (5.56, 1799, 2.67),
                "t5": (6.90, 1449, 3.32),
            },
        ),
    ),
    claims=(
        Claim(
            "TAPE adds a negligible number of parameters (here: 0.3 %)",
            "Table 3 and its text",
            "parameters",
            rows=_TAPE,
            at_most=1.003,
        ),
        Claim(
            "TAPE adds few MACs (here: no more than the table's 12.6 %)",
            "Table 3; the text calls it negligible",
            "macs",
            rows=_TAPE,
            at_most=1.126,
        ),
        Claim(
            "TAPE adds few FLOPs (here: no more than the table's 13.9 %)",
            "Table 3; the text calls it negligible",
            "flops",
            rows=_TAPE,
            at_most=1.139,
        ),
        Claim(
            "T5's bias adds no FLOPs and no MACs (here: less than 0.1 % of FLOPs)",
            "Table 3",
            "flops",
            rows=("t5",),
            at_most=1.001,
        ),
        Claim(
            "an attention layer of fused TAPE takes nearly RoPE's time (here: 1.25 times at most)",
            "Table 4, 2.56 beside 2.08, and its text: approaching the efficiency of RoPE",
            "attention",
            rows=_TAPE,
            at_most=1.25,
        ),
        Claim(
            "an attention layer of fused TAPE is faster than FIRE's and T5's",
            "Table 4 and its text",
            "attention",
            rows=_TAPE,
            faster=("fire", "t5"),
        ),
        Claim(
            "FIRE and T5's bias are not compatible with a fused attention (here: at least 2 times "
            "RoPE's time)",
            "Table 4, 2.7 and 3.3 times, and its text",
            "attention",
            rows=("fire", "t5"),
            at_least=2.0,
        ),
        Claim(
            "fusing makes TAPE's attention 2.2 times as fast",
            "Table 4 and its text",
            why_not="here positions pass through the attention beside the values, as one tensor, "
            "and there is no unfused form",
        ),
    ),
    remarks=(
        "Counted is a forward pass of the paper's model (12 layers of 768, 12 heads) over one "
        "sequence of 1024 tokens, with all keys, as the paper counts; MACs of the pairs j ≤ i, "
        "which a kernel that skips the others has to do, stand beside it. Elementwise operations "
        "are those of the equations as the reference writes them: one for each number put out, "
        "five for a softmax; the last column has them for each pair of tokens in a head, of which "
        "RoPE's are the softmax.",
        "The paper's MACs and parameters of RoPE and FIRE come out here to its last digit. Its "
        "FLOPs are twice the MACs, and one for each number out of softmax and activations; it "
        "counts no norms, rotations or lookups. Its TAPE is the released code, which passes cosine "
        "and sine through the attention in duplicate: 20.2 GMACs more than RoPE, where the "
        "released variant here needs 9.5 and the paper's equations 18.2.",
        "Timed are fresh models side by side with RoPE's in one process: the median of the ratios "
        "of paired rounds, with their quartiles in brackets. RoPE beside itself shows the noise. "
        "Every row's attention is the fastest that there is here, RoPE's too; a row whose kernel "
        "is the reference is slow for that reason.",
    ),
)
