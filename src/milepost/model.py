"""A decoder-only transformer around any encoding: GPT-2, Llama and FoX Pro by settings.

Data flows one way:

    tokens -> embed -> encoding.begin -> blocks (attention, MLP) -> norm -> logits
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args, get_type_hints

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.attention import Attention, hard_op
from milepost.cache import Cache, Memory
from milepost.encoding import Encoding, Host, Positions, build
from milepost.errors import UsageError, unknown
from milepost.ops.dispatch import BACKENDS
from milepost.shapes import check_integers, check_number, check_shape, shape


@dataclass(frozen=True)
class Config:
    """Everything that decides a model.

    Attributes:
        vocab_size: number of tokens.
        dim: width of the residual stream.
        layers: number of blocks.
        heads: query heads.
        key_heads: key and value heads, a divisor of `heads`; `heads` if None.
        head_dim: width of a head; dim / heads if None.
        mlp: "gelu" or "relu" (two matrices), "swiglu" or "geglu" (three, one a gate).
        mlp_dim: hidden width of the MLP; 4 · dim if None.
        norm: "layer" or "rms".
        norm_place: "pre" (GPT-2, Llama) or "post" (Vaswani et al. 2017; CoPE's counting code).
        tied: whether input and output embeddings are one matrix.
        bias: whether linear layers have biases.
        dropout: probability, on the embedding and on both branches of a block.
        qk_norm, kv_shift, output_norm, output_gate: parts of the FoX Pro block (`Attention`).
        hard_attention: whether a head attends to the key of the largest logit alone, trained
            straight through softmax (CoPE's Table 7); for encodings whose op is softmax attention.
        window: how many keys a token sees, itself included; all if None.
        max_length: the longest sequence that tables indexed by token (absolute, relative) cover.
        encoding: a name from `milepost encodings`.
        encoding_options: its options.
        backend: of the ops: "auto", "reference", "native" or "triton".
        init_std: standard deviation of linear and embedding weights, branches' outputs divided by
            √(2 · layers) (GPT-2: 0.02). None: PyTorch's default for linear layers, 1/√dim for
            embeddings (CoPE's released code).
    """

    vocab_size: int
    dim: int
    layers: int
    heads: int
    key_heads: int | None = None
    head_dim: int | None = None
    mlp: Literal["gelu", "relu", "swiglu", "geglu"] = "gelu"
    mlp_dim: int | None = None
    norm: Literal["layer", "rms"] = "layer"
    norm_place: Literal["pre", "post"] = "pre"
    tied: bool = True
    bias: bool = True
    dropout: float = 0.0
    qk_norm: bool = False
    kv_shift: bool = False
    output_norm: bool = False
    output_gate: bool = False
    hard_attention: bool = False
    window: int | None = None
    max_length: int = 1024
    encoding: str = "rope"
    encoding_options: Mapping[str, Any] = field(default_factory=dict)
    backend: str = "auto"
    init_std: float | None = None

    def __post_init__(self) -> None:
        """Check every setting, so that a mistake is named before anything is built."""
        for name in ("vocab_size", "dim", "layers", "heads", "max_length"):
            positive(name, getattr(self, name))
        for name in ("key_heads", "head_dim", "mlp_dim", "window"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        hints = get_type_hints(type(self))
        for name in ("mlp", "norm", "norm_place"):
            if getattr(self, name) not in get_args(hints[name]):
                raise unknown(name, getattr(self, name), get_args(hints[name]))
        for name, hint in hints.items():
            if hint is bool and not isinstance(getattr(self, name), bool):
                raise UsageError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.key_heads is not None and self.heads % self.key_heads:
            raise UsageError(
                f"key_heads must divide heads, got key_heads={self.key_heads} and "
                f"heads={self.heads}: choose key_heads from the divisors of {self.heads}"
            )
        if self.head_dim is None and self.dim % self.heads:
            raise UsageError(
                f"heads must divide dim, got dim={self.dim} and heads={self.heads}: "
                f"choose another number of heads, or set head_dim"
            )
        check_number("dropout", self.dropout)
        if not 0 <= self.dropout < 1:
            raise UsageError(f"dropout must be in [0, 1), got {self.dropout}")
        if self.init_std is not None:
            check_number("init_std", self.init_std)
            if self.init_std <= 0:
                raise UsageError(
                    f"init_std must be above 0, or None for PyTorch's defaults, got {self.init_std}"
                )
        if self.backend not in BACKENDS:
            raise unknown("backend", self.backend, BACKENDS)
        if not isinstance(self.encoding, str):
            raise UsageError(f"encoding must be a name, as 'rope', got {self.encoding!r}")
        if not isinstance(self.encoding_options, Mapping):
            raise UsageError(
                f"encoding_options must map names to values, as {{'p_max': 64}}, "
                f"got {self.encoding_options!r}"
            )

    @property
    def host(self) -> Host:
        """What the encoding may know of this model."""
        return Host(
            dim=self.dim,
            layers=self.layers,
            heads=self.heads,
            key_heads=self.key_heads or self.heads,
            head_dim=self.head_dim or self.dim // self.heads,
            max_length=self.max_length,
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {**dataclasses.asdict(self), "encoding_options": dict(self.encoding_options)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Config":
        """The inverse of `to_dict`; an unknown or missing key is a `UsageError`."""
        fields = dataclasses.fields(cls)
        known = {f.name for f in fields}
        for name in values:
            if name not in known:
                raise unknown("model setting", name, known)
        no_default = dataclasses.MISSING
        needed = [
            f.name for f in fields if f.default is no_default and f.default_factory is no_default
        ]
        missing = [name for name in needed if name not in values]
        if missing:
            raise UsageError(
                f"model settings must have {', '.join(needed)}, got none for {', '.join(missing)}: "
                f"add them"
            )
        return cls(**values)


def positive(name: str, number: Any) -> None:
    """`number` is a whole number above 0, or a `UsageError`."""
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise UsageError(f"{name} must be a whole number above 0, got {number!r}")


def extremes(integers: Tensor) -> tuple[int, int]:
    """The least and the largest, if knowing them is cheap; 0 and 0 elsewhere.

    A GPU would have to be waited for, and torch.compile cannot trace values.
    """
    if integers.device.type != "cpu" or torch.compiler.is_compiling() or not integers.numel():
        return 0, 0
    least, most = integers.aminmax()
    return int(least), int(most)


class MLP(nn.Module):
    """W₂ act(W₁ x), or with a gate W₂ (act(W_g x) ⊙ W₁ x)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden = config.mlp_dim or 4 * config.dim
        activations: dict[str, Callable[[Tensor], Tensor]]
        activations = {"gelu": F.gelu, "relu": F.relu, "swiglu": F.silu, "geglu": F.gelu}
        self.activation = activations[config.mlp]
        gated = config.mlp in ("swiglu", "geglu")
        self.gate = nn.Linear(config.dim, hidden, config.bias) if gated else None
        self.up = nn.Linear(config.dim, hidden, config.bias)
        self.down = nn.Linear(hidden, config.dim, config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """X (B, S, dim) -> (B, S, dim)."""
        if self.gate is None:
            return self.down(self.activation(self.up(x)))
        return self.down(self.activation(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention and MLP, each with its residual and its norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention = Attention(
            config.host,
            bias=config.bias,
            qk_norm=config.qk_norm,
            kv_shift=config.kv_shift,
            output_norm=config.output_norm,
            output_gate=config.output_gate,
            hard=config.hard_attention,
            backend=config.backend,
        )
        self.mlp = MLP(config)
        self.attention_norm = make_norm(config)
        self.mlp_norm = make_norm(config)
        self.dropout = nn.Dropout(config.dropout)
        self.pre_norm = config.norm_place == "pre"

    def forward(
        self,
        x: Tensor,
        encoding: Encoding,
        positions: Positions,
        state: Any,
        cache: Memory,
        backend: str | None = None,
    ) -> tuple[Tensor, Any]:
        """X (B, S, dim) and the encoding's state, one layer up."""
        normed = self.attention_norm(x) if self.pre_norm else x
        attended, state = self.attention(normed, encoding, positions, state, cache, backend)
        x = x + self.dropout(attended)
        if not self.pre_norm:
            x = self.attention_norm(x)
        hidden = self.mlp(self.mlp_norm(x) if self.pre_norm else x)
        state = encoding.carry(state, hidden)
        x = x + self.dropout(hidden)
        return (x if self.pre_norm else self.mlp_norm(x)), state


def make_norm(config: Config) -> nn.Module:
    """The norm that the configuration names."""
    if config.norm == "rms":
        return nn.RMSNorm(config.dim, eps=1e-6)
    return nn.LayerNorm(config.dim, bias=config.bias)


class Decoder(nn.Module):
    """A causal language model.

    The stack of encodings stands beside the stack of blocks: layer i uses
    `encodings[layer_encoding[i]]`, and layers that share an encoding share its module.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = make_norm(config) if config.norm_place == "pre" else nn.Identity()
        self.unembedding = nn.Linear(config.dim, config.vocab_size, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        self.initialise()
        if config.tied:
            self.unembedding.weight = self.embedding.weight
        stack = build(config.encoding, config.host, config.encoding_options)
        distinct = list(dict.fromkeys(stack))
        if config.hard_attention:
            for encoding in distinct:
                hard_op(encoding)
        self.encodings = nn.ModuleList(distinct)
        self.layer_encoding = [distinct.index(encoding) for encoding in stack]

    def initialise(self) -> None:
        """Draw the model's own weights; an encoding draws its own."""
        std = self.config.init_std
        nn.init.normal_(self.embedding.weight, std=std or self.config.dim**-0.5)
        if std is None:
            return
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                branch_end = name.endswith(("attention.output", "mlp.down"))
                depth = math.sqrt(2 * self.config.layers) if branch_end else 1.0
                nn.init.normal_(module.weight, std=std / depth)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(
        self,
        tokens: Tensor,
        *,
        cache: Cache | None = None,
        padding: Tensor | None = None,
        documents: Tensor | None = None,
        shift: int = 0,
    ) -> Tensor:
        """Logits of the token after each one.

        Args:
            tokens: (B, S) integers.
            cache: of the tokens before these; it is extended by these.
            padding: (B,) integers, how many tokens at the left of each row are padding. With a
                cache, give it at every call. What comes out at padding means nothing.
            documents: (B, S) integers, equal for tokens of one packed document; neighbours in a
                row only see their own document. Not with a cache.
            shift: the number of the first token, where it is not 0: what an encoding makes of
                places in the sequence is made of places that much later. With a cache, give it at
                every call. Not with padding or documents.

        Returns:
            (B, S, vocab_size).

        Raises:
            UsageError: an argument has a wrong shape or dtype, does not fit the cache, or holds
                values out of range (looked at on the CPU only, where it costs no waiting), or
                tokens lie past the end of a learned table.
        """
        positions = self.positions(tokens, cache, padding, documents)
        if shift:
            positive("shift", shift)
            if positions.index.ndim == 2:
                raise UsageError(
                    f"give shift, or padding or documents, not both: got shift = {shift} for rows "
                    f"whose tokens have numbers of their own"
                )
            positions = positions.renumbered(positions.index + shift, positions.end + shift)
        if cache is None:
            cache = Cache()
        encodings = [cast(Encoding, self.encodings[i]) for i in self.layer_encoding]
        x, state = encodings[0].begin(self.embedding(tokens), positions)
        x = self.dropout(x)
        for i, (block, encoding) in enumerate(zip(self.blocks, encodings, strict=True)):
            x, state = block(x, encoding, positions, state, cache.layers[i])
        cache.length, cache.batch = positions.end, tokens.shape[0]
        return self.unembedding(self.norm(x))

    def positions(
        self,
        tokens: Tensor,
        cache: Cache | None,
        padding: Tensor | None,
        documents: Tensor | None,
    ) -> Positions:
        """Where `tokens` stand, from what the caller said of padding and documents."""
        check_integers("tokens", tokens, "token ids")
        if tokens.ndim != 2:
            raise UsageError(f"tokens must have shape (batch, time), got {shape(tokens)}")
        least, most = extremes(tokens)
        if least < 0 or most >= self.config.vocab_size:
            raise UsageError(
                f"tokens must be at least 0 and below vocab_size = {self.config.vocab_size}, got "
                f"ids from {least} to {most}: build the model with the vocab_size of the data"
            )
        B, S = tokens.shape
        if cache is not None and cache.batch is not None and cache.batch != B:
            raise UsageError(
                f"tokens must have as many rows as the cache, {cache.batch}, got {B}: "
                f"begin another batch with a new Cache()"
            )
        first = 0 if cache is None else cache.length
        column = torch.arange(first, first + S, device=tokens.device)
        index, start = column, None
        if padding is not None and documents is not None:
            raise UsageError("give padding or documents, not both: packed rows have no padding")
        if padding is not None:
            check_integers("padding", padding, "how many tokens at the left of each row")
            check_shape("padding", padding, (B,), axes="(batch,)")
            if extremes(padding)[0] < 0:
                raise UsageError(f"padding must not be negative, got {padding.tolist()}")
            start = padding[:, None].expand(B, S)
            index = (column - start).clamp(min=0)
        if documents is not None:
            check_integers("documents", documents, "equal for tokens of one document")
            if documents.shape != tokens.shape or first:
                raise UsageError(
                    f"documents must have the shape of tokens, {shape(tokens)}, and come without "
                    f"a cache, got {shape(documents)} after {first} cached tokens"
                )
            begins = torch.ones_like(documents, dtype=torch.bool)
            begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
            start = torch.where(begins, column, 0).cummax(dim=1).values
            index = column - start
        positions = Positions(index=index, first=first, length=S, start=start)
        return positions if self.config.window is None else positions.within(self.config.window, B)
