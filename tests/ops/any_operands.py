"""Shapes and options that nobody chose, for every fused backend's tests."""

import math
from dataclasses import replace

import torch
from hypothesis import strategies as st

from .cases import Case, like_keys, like_queries, log_f, table
from .exact import FUSED


def may_skip(name):
    """Whether the op takes `skip`."""
    return name in ("cope", "cope with everything", "forgetting") or "stick" in name


@st.composite
def cases(draw, *, longest):
    T, G = draw(st.integers(1, longest)), draw(st.integers(1, 2))
    return Case(
        start=draw(st.sampled_from([None, "padding", "window", "packed", "no key"])),
        B=draw(st.integers(1, 2)),
        H=G * draw(st.integers(1, 3)),
        G=G,
        S=draw(st.integers(1, T)),
        T=T,
        D=draw(st.integers(1, 40)),
        V=draw(st.integers(1, 50)),
        span=draw(st.integers(1, T)),
    )


rows = st.sampled_from([1, 2, 3, 5, 16, 31, 65, 160])
number = st.sampled_from([None, 0.5, 1.0, -0.8])
choices = st.fixed_dictionaries(
    {
        **dict.fromkeys(("rows", "relative_rows"), rows),
        **dict.fromkeys(("per_head", "relative_per_head", "shared_batch"), st.booleans()),
        **dict.fromkeys(("gate_keys", "position_query", "relative_table"), st.booleans()),
        **dict.fromkeys(("scale", "gate_scale"), number),
        "position_scale": st.sampled_from([1.0, 0.3, -2.0]),
        "forgetting": st.sampled_from([0.0, 0.01, 1.0]),
    }
)


def with_choices(name, chosen):
    """The op with all that it takes beside its queries, keys, values and start."""
    op = FUSED[name]

    def number(name, case):
        return chosen[name] and chosen[name] / math.sqrt(case.D)

    def extra(case):
        found = {"scale": number("scale", case)}
        if name == "bias table":
            found["bias"] = torch.randn(case.H, chosen["rows"], dtype=torch.float64)
        if name == "bias dense":
            batch = 1 if chosen["shared_batch"] else case.B
            heads = case.H if chosen["per_head"] else 1
            found["bias"] = torch.randn(batch, heads, case.S, case.T, dtype=torch.float64)
        if name in ("relative", "cope", "cope with everything"):
            found["table"] = table(case, chosen["rows"], per_head=chosen["per_head"])
        if name.startswith("cope"):
            found["gate_scale"] = number("gate_scale", case)
        if name == "cope_alibi":
            found["slopes"] = torch.randn(case.H, dtype=torch.float64)
        if name.startswith("cope") and chosen["gate_keys"]:
            found["gate_keys"] = like_keys(case)
        if name == "cope with everything":
            found["position_scale"] = chosen["position_scale"]
            if chosen["position_query"]:
                found["position_query"] = like_queries(case)
            if chosen["relative_table"]:
                per_head = chosen["relative_per_head"]
                found["relative_table"] = table(case, chosen["relative_rows"], per_head=per_head)
        if name == "forgetting":
            found["log_f"] = chosen["forgetting"] * log_f(case)
        if name.startswith("stick_breaking"):
            found["attend_current"] = "current" in name
        return found

    return replace(op, extra=extra)
