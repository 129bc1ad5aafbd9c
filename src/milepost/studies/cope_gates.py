"""What the learned gates count: a reader's question.

CoPE's claim (arXiv 2405.18719) is that heads learn *what to count*. Its examples are `w` in
flip-flop and the non-blanks in selective copy; in counting one would think of the statements. Here
the gates of every head are set against the classes of tokens of each task: the correlation of g_ij
with "key j is such a token", over all pairs of a query and a key that it sees, and the largest of
any head, up or down: a gate that is off for a class alone tells it apart as well.
"""

from milepost.study.study import Arm, Claim, Column, Picture, Probe, Study, Table, Unit

_CORRELATION = Unit("largest |correlation| over heads", higher=True, least=0.02, decimals=2)
_GATES = Probe("gates", {"": {"sequences": 16}})
_EXAMPLE = Probe("picture", {"": {"length": 64}})

_TASKS: tuple[tuple[str, str, dict[str, int], tuple[str, ...]], ...] = (
    ("flip-flop", "Flip-flop", {}, ("w", "i", "r")),
    ("selective-copy", "Selective copy", {}, ("blank", "symbol", "separator")),
    ("counting", "Counting, 1 variable", {"variables": 1}, ("pass", "set", "increment")),
)

STUDY = Study(
    name="cope-gates",
    title="What the learned gates count",
    paper="A reader's question of Golovneva et al. (2024), sections 5.1 to 5.3",
    link="https://arxiv.org/abs/2405.18719",
    minutes=10,
    rows=("cope", "cope-alibi", "fox"),
    arms=tuple(
        Arm(name, title, name, settings, test_sets=("in",), probes=(_GATES, _EXAMPLE))
        for name, title, settings, _ in _TASKS
    ),
    tables=tuple(
        Table(
            name,
            title,
            "how closely some head's gates follow a class of tokens",
            tuple(Column(one, name, "best", one, probe="gates") for one in classes),
            _CORRELATION,
        )
        for name, title, _, classes in _TASKS
    ),
    pictures=tuple(
        Picture("example", f"{title}: gates", name, "picture", "gates", "key", "query")
        for name, title, _, _ in _TASKS
    ),
    claims=(
        Claim(
            "In flip-flop a head's gates tell `w` from the rest (here: |correlation| 0.5)",
            "section 5.1, which has it as an example",
            ("flip-flop/w",),
            better=("cope",),
            within=0.5,
        ),
        Claim(
            "In selective copy a head's gates tell symbols from blanks (here: |correlation| 0.5)",
            "section 5.2: CoPE can count only non-blank tokens",
            ("selective-copy/symbol",),
            better=("cope",),
            within=0.5,
        ),
    ),
)
