"""The language models that several studies share: their arms, and what is measured of each.

All of a scale are measured alike, so that a cell of one study is a cell of the others too
(`milepost.study.run` takes it from the folder beside).

At mini scale a model is GPT-2's block, 2 layers of 64, on bytes of what every Python brings along,
its documentation (prose) or its source (code): 600 steps of 16 windows of 128 bytes. It is measured
in windows from an eighth of that length to eight times it.
"""

from __future__ import annotations

from collections.abc import Mapping

from milepost.study.study import Arm, Column, Figure, Picture, Probe

FACTORS = (0.125, 0.25, 0.5, 1, 2, 4, 8)

PROBES = (
    Probe(
        "perplexity",
        {
            "mini": {"factors": FACTORS, "tokens": 2**14},
            "paper": {"factors": FACTORS[:-1], "tokens": 2**18},
        },
    ),
    Probe(
        "attention",
        {"mini": {"length": 96, "sequences": 16}, "paper": {"length": 96, "sequences": 64}},
    ),
    Probe(
        "gates",
        {"mini": {"length": 128, "sequences": 8}, "paper": {"length": 1024, "sequences": 8}},
    ),
    Probe("saturation", {"": {"factors": (0.5, 1, 2, 4), "sequences": 4}}),
    Probe(
        "stability",
        {"mini": {"length": 96, "sequences": 8}, "paper": {"length": 512, "sequences": 8}},
    ),
)


def prose(rows: tuple[str, ...] | None = None, recipe: str = "prose") -> Arm:
    """Prose; at paper scale Wikitext-103's recipe, or TAPE's "pretraining" on C4."""
    return Arm("prose", "Prose", "text", recipe=recipe, test_sets=(), probes=PROBES, rows=rows)


def code(rows: tuple[str, ...] | None = None) -> Arm:
    """Code."""
    return Arm("code", "Code", "text", recipe="code", test_sets=(), probes=PROBES, rows=rows)


def at(
    factor: float,
    title: str = "",
    *,
    arm: str = "prose",
    source: str = "",
    paper: Mapping[str, Figure] | None = None,
) -> Column:
    """Perplexity of a token in windows of so many trained lengths."""
    title = title or ("T" if factor == 1 else f"{factor:g} T")
    return Column(title, arm, f"x{factor:g}", "perplexity", source, paper or {}, "perplexity")


def by_window(arm: str = "prose", title: str = "Perplexity by window") -> Picture:
    """Perplexity against the window."""
    return Picture(
        "curve", title, arm, "perplexity", "perplexity", "window, trained lengths", "perplexity"
    )


def by_position(arm: str = "prose", title: str = "Loss by position") -> Picture:
    """Nats of a token against how many it is said after, in the longest window."""
    return Picture(
        "positions", title, arm, "perplexity", "by_position", "tokens before it", "nats of a token"
    )
