"""What a position encoding is, and how one is found by its name.

Everything that an encoding does is either per token (linear cost, cacheable, plain PyTorch: the
hooks of `Encoding`) or pairwise (quadratic: an op of `milepost.ops`). One attention layer serves
all of them:

    operands = encoding.encode(query, key, value, x=x, positions=positions, state=state)
    memory = cache.extend(operands.memory, operands.sums)
    attended = encoding.op(query=operands.query, **memory, **operands.params)
    out, state = encoding.read(attended, operands=operands, state=state)

Encodings live in `milepost.encodings`, one file each; the folder is the registry. The file
`cope_alibi.py` holds the encoding `cope-alibi`, and `cope_with_rope.py` holds `cope+rope`, which is
made of two others (`milepost.composition`).
"""

import inspect
import math
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from milepost import ops
from milepost.errors import UsageError, unknown
from milepost.ops import dispatch


@dataclass(frozen=True)
class Host:
    """What an encoding may know of the model it lives in.

    Attributes:
        dim: width of the residual stream.
        layers: number of layers.
        heads: query heads.
        key_heads: key and value heads, a divisor of `heads`.
        head_dim: width of a head.
        max_length: the longest text that the model is meant for.
        rope: makes the model's own rotary encoding, if it came with one, as pretrained models do.
            Encodings that rotate take it, unless they are told a `base`.
    """

    dim: int
    layers: int
    heads: int
    key_heads: int
    head_dim: int
    max_length: int
    rope: Callable[[], "Encoding"] | None = field(default=None, repr=False)

    @property
    def group(self) -> int:
        """Query heads per key head."""
        return self.heads // self.key_heads


@dataclass(frozen=True)
class Positions:
    """Where the tokens of one call stand.

    Attributes:
        index: (S,) or (B, S) integers, the place of each token in its own sequence or document.
            Below `bound`.
        first: how many tokens the cache holds already. The token in column s is key `first + s`.
        length: S, how many tokens this call brings.
        start: (B, S) integers or None, the first key that each token may see (`milepost.ops`).
        beyond: a bound on `index` where the caller numbers tokens himself, else 0.
    """

    index: Tensor
    first: int
    length: int
    start: Tensor | None = None
    beyond: int = 0

    @property
    def end(self) -> int:
        """How many keys there are, cached ones included."""
        return self.first + self.length

    @property
    def bound(self) -> int:
        """What every index is below; known without waiting for the device."""
        return max(self.end, self.beyond)

    def within(self, window: int, batch: int) -> Self:
        """The same tokens, none of which sees more than `window` keys, itself included."""
        column = torch.arange(self.first, self.end, device=self.index.device)
        earliest = (column - window + 1).clamp(min=0).expand(batch, self.length)
        start = earliest if self.start is None else torch.maximum(self.start, earliest)
        return replace(self, start=start)

    def renumbered(self, index: Tensor, beyond: int = 0) -> Self:
        """The same tokens under other numbers, as randomised positions give them."""
        return replace(self, index=index, beyond=max(self.beyond, beyond))


@dataclass(frozen=True)
class Operands:
    """What `encode` hands to the op, by the names of the op's arguments.

    Attributes:
        query: (B, H, S, D).
        memory: tensors of the new tokens with time on axis 2, to be cached.
        sums: numbers of the new tokens, (B, H, S), of which the op gets the running sum since the
            first token, in fp64. The cache keeps the sum: a new token is added to it once.
        params: everything else that the op takes: tables, slopes, scales.
    """

    query: Tensor
    memory: dict[str, Tensor]
    params: dict[str, Any] = field(default_factory=dict)
    sums: dict[str, Tensor] = field(default_factory=dict)


class Encoding(nn.Module):
    """A position encoding. Every hook defaults to the identity: as it stands, this is none.

    A subclass overrides the hooks that it needs and states the facts that `milepost encodings`
    prints. Its constructor takes the host first and then its options, all with defaults.

    Attributes:
        paper: authors, year and arXiv number.
        changes: what it changes of plain attention, in a few words.
        cached: the names of the tensors that it remembers of each token.
        per_layer: whether each layer has an object, and so parameters, of its own.
        variants: sets of options that the shared examination tries beside the defaults.
        op: the pairwise part, a function of `milepost.ops`.
        op_name: that function's module, by which fused kernels are found.
        observer: told of every `milepost.attention.Call`; set for a while by `milepost.look`.
    """

    paper: ClassVar[str]
    changes: ClassVar[str]
    cached: ClassVar[tuple[str, ...]] = ("key", "value")
    per_layer: ClassVar[bool] = False
    variants: ClassVar[tuple[dict[str, Any], ...]] = ()
    op: Callable[..., Any] = staticmethod(ops.softmax_attention)
    op_name: ClassVar[str] = "softmax"
    observer: Callable[[Any], None] | None = None

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.host = host

    @classmethod
    def options(cls) -> dict[str, Any]:
        """The options with their defaults: those of the constructor, unless overridden."""
        parameters = inspect.signature(cls).parameters.values()
        return {p.name: p.default for p in parameters if p.default is not p.empty}

    @classmethod
    def own(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Those of `options` that are this encoding's, for one that holds it beside another."""
        known = cls.options()
        return {name: value for name, value in options.items() if name in known}

    @classmethod
    def stack(cls, host: Host, **options: Any) -> "list[Encoding]":
        """The encoding of each layer, first to last: one object for all, unless `per_layer`.

        The first layer's object begins the state.
        """
        if cls.per_layer:
            return [cls(host, **options) for _ in range(host.layers)]
        return [cls(host, **options)] * host.layers

    def begin(self, x: Tensor, positions: Positions) -> tuple[Tensor, Any]:
        """Once, at the embedding: x (B, S, dim) and the state that travels up the layers."""
        return x, None

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
        """Per layer, before the op: query (B, H, S, D), key, value (B, G, S, D) of new tokens."""
        return Operands(query, {"key": key, "value": value})

    def read(self, attended: Any, *, operands: Operands, state: Any) -> tuple[Tensor, Any]:
        """Per layer, after the op: what it returned -> the heads' output (B, H, S, D), state."""
        return attended, state

    def carry(self, state: Any, hidden: Tensor) -> Any:
        """Per layer, after the MLP, given its output before the residual (B, S, dim)."""
        return state


def names() -> tuple[str, ...]:
    """The names of all encodings, sorted."""
    folder = import_module("milepost.encodings")
    return tuple(
        sorted(
            module.name.replace("_with_", "+").replace("_", "-")
            for module in pkgutil.iter_modules(folder.__path__)
        )
    )


def find(name: str) -> type[Encoding]:
    """The class of the encoding `name`: the one that its file defines and that has a paper."""
    if name not in names():
        raise unknown("encoding", name, names())
    path = "milepost.encodings." + name.replace("+", "_with_").replace("-", "_")
    module = import_module(path)
    found = [
        member
        for member in vars(module).values()
        if inspect.isclass(member) and issubclass(member, Encoding) and member.__module__ == path
    ]
    assert len(found) == 1, f"{path} must define exactly one Encoding, got {found}"
    return found[0]


def options(name: str) -> dict[str, Any]:
    """The options of the encoding `name` with their defaults."""
    return find(name).options()


def check_option(option: str, value: Any, default: Any) -> None:
    """`value` is of the kind of the option's default, or a `UsageError`."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if isinstance(default, bool):
        kind, fits = "True or False", isinstance(value, bool)
    elif isinstance(default, str):
        kind, fits = "a string", isinstance(value, str)
    elif isinstance(default, int):
        kind, fits = "a whole number", number and isinstance(value, int)
    elif default is None:
        kind, fits = "a finite number or None", number or value is None
    else:
        kind, fits = "a finite number", number
    if not fits:
        raise UsageError(f"{option} must be {kind}, got {value!r}: the default is {default!r}")


def length_or(default: int, name: str, given: int | None) -> int:
    """The option `name`, a number of tokens; `default` where it is None."""
    if given is None:
        return default
    if not isinstance(given, int) or given < 1:
        raise UsageError(
            f"{name} must be a whole number of tokens above 0, or None for {default} on this "
            f"model, got {given!r}"
        )
    return given


def check(name: str, given: Mapping[str, Any]) -> None:
    """The encoding `name` exists, and so do these options of it, or a `UsageError`."""
    known = options(name)
    for option, value in given.items():
        if option not in known:
            if not known:
                raise UsageError(
                    f"encoding {name!r} takes no options, got {option!r}: leave it out"
                )
            raise unknown(f"option of encoding {name!r}", option, known)
        check_option(option, value, known[option])


def build(name: str, host: Host, given: Mapping[str, Any] | None = None) -> list[Encoding]:
    """The encoding of each layer, first to last; layers that share one hold the same object.

    Raises:
        UsageError: the name or an option does not exist, or an option's value is not valid.
    """
    given = given or {}
    check(name, given)
    stack = find(name).stack(host, **given)
    assert len(stack) == host.layers, f"{name}: {len(stack)} encodings for {host.layers} layers"
    return stack


def describe(name: str) -> dict[str, Any]:
    """Facts about an encoding: name, paper, changes, options, parameters, cached, backends.

    `parameters` is counted on a host of GPT-2's size: 12 layers, 12 heads of 64, 1024 tokens.
    """
    kind = find(name)
    with torch.device("meta"):
        stack = build(name, Host(768, 12, 12, 12, 64, 1024))
    return {
        "name": name,
        "paper": kind.paper,
        "changes": kind.changes,
        "options": options(name),
        "parameters": sum(p.numel() for p in nn.ModuleList(stack).parameters()),
        "cached": kind.cached,
        "backends": dispatch.backends(kind.op_name),
    }
