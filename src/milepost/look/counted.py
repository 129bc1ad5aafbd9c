"""What each head counts: how its gates fall on the classes of tokens.

Gates are those of CoPE (how much the key counts), of FoX (1 − f_j, what is forgotten there) and of
TAPE (how far the key's place has moved). Other encodings have none, and their attention stands for
it: of stick-breaking attention the amount is then the share of the stick that is spent, of all
others the share that goes to other tokens than the query.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from milepost.errors import UsageError, unknown
from milepost.look.layer import Layer
from milepost.look.shown import Shown, shown
from milepost.look.subject import Subject


@dataclass(frozen=True, eq=False)
class Counted:
    """What the heads of one layer count, in fp64.

    With c_i the class of token i, and g_ij what a head's queries make of the keys,

        falls_cd    = Σ_{i in c} Σ_{j in d} g_ij             for queries of class c, keys of class d
        share_d     = Σ_c falls_cd / Σ_cd falls_cd           of all that the head counts
        amount      = Σ_cd falls_cd / Σ_cd pairs_cd          how much it counts
        selectivity = ½ Σ_cd |falls_cd / Σ falls − pairs_cd / Σ pairs|

    Selectivity is 0 where all pairs of tokens count alike, and near 1 where only few kinds do; 0
    too where nothing counts.

    Attributes:
        of: the array that it is of, "gates" or "attention" (`milepost.look.shown`).
        meaning: what the amount says, in a few words.
        classes: the names of the C classes.
        falls: by query class and key class.
        pairs: how many pairs there are of each.
        amount: how much a head counts, from 0 to 1.
    """

    of: str
    meaning: str
    classes: tuple[str, ...]
    falls: Float[Tensor, "H C C"]
    pairs: Float[Tensor, "C C"]
    amount: Float[Tensor, " H"]

    @property
    def selectivity(self) -> Float[Tensor, " H"]:
        """How far from even it is over the classes, from 0 to 1."""
        falls = self.falls / self.falls.sum((1, 2), keepdim=True)
        return ((falls - self.pairs / self.pairs.sum()).abs().sum((1, 2)) / 2).nan_to_num(0)

    def share(self, queries: str | None = None) -> Float[Tensor, "H C"]:
        """Of what the queries of a class count, or all queries, the part in each class of keys.

        NaN where they count nothing.

        Raises:
            UsageError: there is no such class.
        """
        if queries is None:
            falls = self.falls.sum(1)
        elif queries in self.classes:
            falls = self.falls[:, self.classes.index(queries)]
        else:
            raise unknown("class of queries", queries, self.classes)
        return falls / falls.sum(-1, keepdim=True)


def counted(subject: Subject) -> tuple[Counted, ...]:
    """What the heads of each layer count."""
    layers = zip(subject.trace.layers, shown(subject.trace), strict=True)
    return tuple(
        of_layer(layer, arrays, subject.classes, arrays[counts_by(layer, arrays)].make())
        for layer, arrays in layers
    )


def ranked(
    layers: Sequence[Counted], keys: str, queries: str | None = None
) -> list[tuple[int, int, float]]:
    """Layer, head and share of every head, those first whose gates fall most on a class of keys.

    Heads that count nothing come last, with a share of 0.

    Raises:
        UsageError: there is no such class.
    """
    found = []
    for number, layer in enumerate(layers):
        if keys not in layer.classes:
            raise unknown("class of keys", keys, layer.classes)
        shares = layer.share(queries)[:, layer.classes.index(keys)].nan_to_num(0)
        found += [(number, head, share) for head, share in enumerate(shares.tolist())]
    return sorted(found, key=lambda each: -each[2])


def counts_by(layer: Layer, arrays: Mapping[str, Shown]) -> str:
    """Which of a layer's arrays says what it counts."""
    return "gates" if "gates" in arrays and layer.op != "stick_breaking" else "attention"


def of_layer(
    layer: Layer, arrays: Mapping[str, Shown], classes: Mapping[str, Tensor], array: Tensor
) -> Counted:
    """What the heads of one layer count by an `array`, that of `counts_by`."""
    if not classes:
        raise UsageError("classes must be at least one, got none: name those of the tokens")
    of = counts_by(layer, arrays)
    members = torch.stack([one.double() for one in classes.values()]).to(array.device)
    falls = members @ array.double() @ members.mT
    pairs = members @ layer.visible[0].double() @ members.mT
    total = falls.sum((1, 2))
    queries = layer.visible[0].any(-1).sum().clamp(min=1)  # a lone one may see nothing
    if of == "gates":
        meaning, amount = f"{arrays[of].title}, on average", total / pairs.sum()
    elif layer.op == "stick_breaking":
        meaning, amount = "spent of the stick", total / queries
    else:
        itself = array.diagonal(dim1=1, dim2=2).double().sum(-1)
        meaning, amount = "attention to other tokens", (total - itself) / queries
    return Counted(of, meaning, tuple(classes), falls.cpu(), pairs.cpu(), amount.cpu())
