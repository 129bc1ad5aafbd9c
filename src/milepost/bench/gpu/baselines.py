"""All that takes part in a cell on a GPU, and why something does not.

milepost          the op, by its Triton kernels
sdpa              PyTorch's attention: the fastest of its backends, in each cell and direction
plain             milepost's softmax_attention: what the encoding itself costs
flex              PyTorch's FlexAttention, compiled, where a score_mod can say what the op does
listing           the CoPE paper's Listing 1, as it stands
listing-compiled  the same by torch.compile
fla               flash-linear-attention's forgetting attention
fox-official      the FoX authors' kernel
stick-official    the stick-breaking authors' kernel

FlexAttention changes one logit at a time: CoPE and stick-breaking attention, whose logits depend on
those of newer keys, it cannot say. What it reads is a closure over tensors; each is indexed once,
as gradients of what is captured demand.

The last three are packages that one has or has not, and are called in the layout that they want.
Their signatures are those of their public sources: fla.ops.forgetting_attn.parallel_forgetting_attn
(q, k, v, g), with time before heads; forgetting_transformer.forgetting_attention(q, k, v,
log_fgate, head_first=True); stickbreaking_attention.sb_attn.sb_attn(q, k, v).
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from milepost import ops
from milepost.bench import baselines, contenders
from milepost.bench.baselines import MissingError
from milepost.bench.cases import Operands
from milepost.bench.contenders import LISTING, MILEPOST, PLAIN, SDPA, Contender
from milepost.bench.gpu.cells import Cell
from milepost.bench.gpu.device import Call, Device
from milepost.bench.gpu.timing import Entrant
from milepost.bench.results import BOTH, FORWARD

BACKEND = "triton"
FLEX, LISTING_COMPILED = "flex", "listing-compiled"
FLA, FOX, STICK = "fla", "fox-official", "stick-official"
# The package of each, and the op that it computes
PACKAGES = {FLA: "fla", FOX: "forgetting_transformer", STICK: "stickbreaking_attention"}
OFFICIAL = {"forgetting": (FLA, FOX), "stick_breaking": (STICK,)}
FLEXIBLE = ("softmax", "bias", "relative", "forgetting")
MASK_BLOCK = 128


class Runner(Contender):
    """A contender whose backward can be run alone too."""

    time_before_heads = False
    """Whether its tensors are (batch, time, heads, width)."""

    def backward(self) -> Call:
        """The gradients of one forward, which is kept, again and again."""
        results = contenders.parts(self.call(**self.given))
        directions = self.directions_of(results)

        def call() -> object:
            return torch.autograd.grad(
                results, self.leaves, directions, retain_graph=True, materialize_grads=True
            )

        return call

    def entrant(
        self, direction: str, around: Callable[[], AbstractContextManager[Any]] | None = None
    ) -> Entrant:
        """The call of a direction, to be timed."""
        ready: dict[str, Callable[[], Call]] = {
            FORWARD: lambda: self.forward,
            BOTH: lambda: self.forward_and_backward,
        }
        prepare = ready.get(direction, self.backward)
        return Entrant(prepare) if around is None else Entrant(prepare, around)


def sdpa_backend(name: str) -> Callable[[], AbstractContextManager[Any]]:
    """Only that backend of PyTorch's attention; within it, others are refused."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return partial(sdpa_kernel, getattr(SDPBackend, name))


def ready_to_compile() -> None:
    """Let compiled backwards be run more than once, and begin without what was compiled before.

    Else a compiled backward overwrites what its forward kept for it, and refuses a second run; and
    after some shapes of one function nothing more would be compiled.
    """
    import torch._dynamo
    import torch._functorch.config

    if hasattr(torch._functorch.config, "donated_buffer"):
        torch._functorch.config.donated_buffer = False
    torch._dynamo.reset()


def causal_blocks(queries: int, device: str) -> Any:
    """FlexAttention's mask: which blocks are met in part, and which in full.

    By its own function the mask would hold every pair once, 4 GiB at 65536 tokens.
    """
    from torch.nn.attention.flex_attention import BlockMask

    tiles = math.ceil(queries / MASK_BLOCK)
    row = torch.arange(tiles, dtype=torch.int32, device=device)
    partly = torch.zeros(1, 1, tiles, tiles, dtype=torch.int32, device=device)
    partly[..., 0] = row
    in_full = row.expand(1, 1, tiles, tiles).contiguous()
    return BlockMask.from_kv_blocks(
        torch.ones(1, 1, tiles, dtype=torch.int32, device=device),
        partly,
        row[None, None].contiguous(),
        in_full,
        BLOCK_SIZE=MASK_BLOCK,
        mask_mod=causal,
        seq_lengths=(queries, queries),
    )


def causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Whether a query sees a key."""
    return query >= key


def flex_call(cell_op: str, attention: Callable[..., Any], mask: Any) -> Callable[..., Tensor]:
    """The op by FlexAttention; `attention` is `flex_attention`, compiled or as it is."""

    def softmax(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention(query, key, value, block_mask=mask)

    def bias(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        last = bias.shape[1] - 1

        def add(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + bias[h, torch.clamp(i - j, 0, last)]

        return attention(query, key, value, score_mod=add, block_mask=mask)

    def relative(query: Tensor, key: Tensor, value: Tensor, table: Tensor) -> Tensor:
        at_distance = query @ table.to(query.dtype).mT
        last = table.shape[0] - 1

        def add(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + at_distance[b, h, i, torch.clamp(i - j, 0, last)]

        return attention(query, key, value, score_mod=add, block_mask=mask)

    def forgetting(query: Tensor, key: Tensor, value: Tensor, log_f: Tensor) -> Tensor:
        decay = log_f.cumsum(-1)
        # two tensors: gradients are not had of one that is indexed twice
        of_query, of_key = decay.clone(), -decay

        def add(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + of_query[b, h, i] + of_key[b, h, j]

        return attention(query, key, value, score_mod=add, block_mask=mask)

    calls: dict[str, Callable[..., Tensor]]
    calls = {"softmax": softmax, "bias": bias, "relative": relative, "forgetting": forgetting}
    return calls[cell_op]


def missing(name: str) -> str | None:
    """Why a package's kernel cannot take part; None if the package is there."""
    package = PACKAGES[name]
    if find_spec(package) is None:
        return f"{package} is not installed"
    return None


def published(name: str, given: Operands) -> Runner:
    """A published kernel on the same numbers, in its own layout."""
    if (reason := missing(name)) is not None:
        raise MissingError(reason)
    query, key, value = (given[one] for one in ("query", "key", "value"))
    try:
        if name == FLA:
            call = import_module("fla.ops.forgetting_attn").parallel_forgetting_attn
            swapped = [x.transpose(1, 2).contiguous() for x in (query, key, value)]
            gate = given["log_f"].transpose(1, 2).contiguous()
            runner = Runner(call, dict(zip("qkvg", (*swapped, gate), strict=True)))
            runner.time_before_heads = True
            return runner
        if name == FOX:
            call = import_module("forgetting_transformer").forgetting_attention
            fox = {"q": query, "k": key, "v": value, "log_fgate": given["log_f"]}
            return Runner(partial(call, head_first=True), fox)
        call = import_module("stickbreaking_attention.sb_attn").sb_attn
        return Runner(call, {"q": query, "k": key, "v": value})
    except (ImportError, AttributeError) as error:
        raise MissingError(f"{PACKAGES[name]} does not load ({error})") from error


def build(name: str, cell: Cell, given: Operands, device: Device) -> Runner:
    """The contender of that name on these operands; `MissingError` with the reason why not."""
    plain = {one: given[one] for one in ("query", "key", "value")}
    if name == MILEPOST:
        return Runner(contenders.by(cell.op, BACKEND), given)
    if name == PLAIN:
        return Runner(partial(ops.softmax_attention, backend=BACKEND), plain)
    if name == SDPA:
        return Runner(baselines.sdpa, plain)
    if name == LISTING:
        return Runner(baselines.listing, given)
    if name == LISTING_COMPILED:
        ready_to_compile()
        return Runner(_compiled(baselines.listing, device), given)
    if name == FLEX:
        return Runner(_flex(cell.op, cell.head_dim, cell.keys, device), given)
    return published(name, given)


@lru_cache(maxsize=1)
def _flex(op: str, head_dim: int, keys: int, device: Device) -> Callable[..., Any]:
    """Compiled once for all kinds of gates, which follow one another."""
    from torch.nn.attention.flex_attention import flex_attention

    ready_to_compile()
    return flex_call(op, _compiled(flex_attention, device), causal_blocks(keys, device.name))


def _compiled(function: Callable[..., Any], device: Device) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False) if device.compiles else function


def names(cell: Cell) -> list[str]:
    """Who takes part in a cell."""
    own = [MILEPOST, SDPA] if cell.op == "softmax" else [MILEPOST, SDPA, PLAIN]
    return [*own, *cell.others]
