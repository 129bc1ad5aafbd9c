"""Relative attention against its equation."""

import torch

from milepost.ops import relative_attention

from . import equations
from .cases import Case, check, every_case, every_table, operands, table


@every_case
@every_table
def test_it_is_its_equation(case, rows, per_head):
    given = operands(case) | {"table": table(case, rows, per_head=per_head)}
    check(relative_attention, equations.relative, given)


def test_scale_leaves_the_position_term_alone():
    given = operands(Case(H=4, G=2)) | {"table": table(Case()), "scale": 0.37}
    check(relative_attention, equations.relative, given)


def test_shaws_own_form_scales_both():
    """q·(k + e) / √D, Shaw et al. 2018, Eq. 4, is `table` times 1/√D."""
    given, e = operands(Case()), table(Case())
    divided = given | {"query": given["query"] / 2, "scale": 1.0, "table": e}
    expected = equations.relative(**divided)
    out = relative_attention(**given, table=e / 2)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
