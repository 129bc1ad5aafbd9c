"""FoX and stick-breaking: a passkey in long garbage, found by exact match.

Lin et al. (arXiv 2503.02130) ask for needles with a judge model; exact match of a passkey stands in
its place. Models are trained on the task from nothing, at one length, and asked at up to four times
it: which encodings find a key farther away than in training? At mini scale the prompt is the short
one ("key 71432."), of 96 bytes: so small a model does not learn the whole one in minutes.
"""

from milepost.study.study import Arm, Claim, Column, Row, Study, Table

STUDY = Study(
    name="fox-needle",
    title="A passkey farther away than in training",
    paper="Lin et al., Forgetting Transformer (2025), needle in a haystack, by exact match",
    link="https://arxiv.org/abs/2503.02130",
    minutes=13,
    rows=(
        "none",
        "rope",
        "alibi",
        "cope",
        "fox",
        Row("fox, open gates", "fox", {"bias": 5.0}),
        "fox+rope",
        "stick-breaking",
        "tape",
    ),
    arms=(
        Arm(
            "passkey",
            "Passkey",
            "passkey",
            at={
                "mini": {
                    "settings": {"length": 96, "short": True},
                    "training": {"batch": 32, "steps": 600},
                }
            },
            test_sets=("in", "length x2", "length x4"),
        ),
    ),
    tables=(
        Table(
            "passkey",
            "Passkey",
            "keys not found, at any depth",
            (
                Column("in-dist", "passkey", "in", "sequence"),
                Column("length ×2", "passkey", "length x2", "sequence"),
                Column("length ×4", "passkey", "length x4", "sequence"),
            ),
        ),
    ),
    claims=(
        Claim(
            "Past the trained length FoX finds more keys than RoPE",
            "arXiv 2503.02130, on needles; the paper trains on text, and here on the task itself",
            ("passkey/length ×2", "passkey/length ×4"),
            better=("fox",),
            worse=("rope",),
        ),
    ),
    remarks=(
        "FoX's gates start at 0.5, as in the authors' code: a token has faded to 1/1000 after ten "
        "others. With open gates they start at 0.993.",
    ),
)
