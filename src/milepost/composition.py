"""Two encodings in one model: a contextual one, which counts or fades, beside a token-based one.

    placed  = token.encode(query, key, value)
    counted = contextual.encode(placed.query, placed.key, value)
    op(counted.query, counted.memory, placed.params + counted.params)

Each part does what it does alone, and no pair has an equation of its own: what is left to a file
of `milepost.encodings` is to say which two, and what of them its op takes.
"""

from typing import Any, ClassVar

from torch import Tensor

from milepost.encoding import Encoding, Host, Operands, Positions


class Composition(Encoding):
    """Tokens are placed by one encoding, then counted by the other.

    The parts are modules under the names in the file's name: `cope_with_rope.py` has `cope` and
    `rope`. Where the contextual part leaves a layer out (`first_layer_only`), the token-based one
    is alone there.

    Attributes:
        parts: the contextual encoding and the token-based one. Options are those of both.
        unrotated: the op's name for queries as they were before the token-based part turned them,
            where it turns them and the op has another use for them.
    """

    variants: ClassVar[tuple[dict[str, Any], ...]] = ()
    parts: ClassVar[tuple[type[Encoding], type[Encoding]]]
    unrotated: ClassVar[str | None] = None
    per_layer = True

    def __init_subclass__(cls) -> None:
        """What is cached is what the contextual part caches."""
        super().__init_subclass__()
        cls.cached = cls.parts[0].cached

    def __init__(self, contextual: Encoding, token: Encoding) -> None:
        super().__init__(contextual.host)
        self.names = type(self).__module__.rpartition(".")[2].split("_with_")
        for name, part in zip(self.names, (contextual, token), strict=True):
            self.add_module(name, part)
        self.op = contextual.op

    @property
    def contextual(self) -> Encoding:
        """The first part."""
        part: Encoding = getattr(self, self.names[0])
        return part

    @property
    def token(self) -> Encoding:
        """The second part."""
        part: Encoding = getattr(self, self.names[1])
        return part

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Those of both."""
        contextual, token = cls.parts
        return {**contextual.options(), **token.options()}

    @classmethod
    def stack(cls, host: Host, **options: Any) -> list[Encoding]:
        """The two stacks side by side."""
        contextual, token = cls.parts
        counting = contextual.stack(host, **contextual.own(options))
        placing = token.stack(host, **token.own(options))
        return [
            cls(counts, places) if isinstance(counts, contextual) else places
            for counts, places in zip(counting, placing, strict=True)
        ]

    def begin(self, x: Tensor, positions: Positions) -> tuple[Tensor, Any]:
        """The token-based part's: its state is the state."""
        return self.token.begin(x, positions)

    def encode(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        x: Tensor,
        positions: Positions,
        state: Any,
    ) -> Operands:
        """Place, then count."""
        call = {"x": x, "positions": positions, "state": state}
        placed = self.token.encode(query, key, value, **call)
        counted = self.contextual.encode(placed.query, placed.memory["key"], value, **call)
        params = {**placed.params, **counted.params}
        if self.unrotated is not None:
            params[self.unrotated] = query
        return Operands(counted.query, counted.memory, params, counted.sums)
