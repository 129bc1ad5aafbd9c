"""From `attention_mask` and `position_ids` to where each token stands and what it may see.

The ops know no masks. They know `start`, the first key that a token may see: so padding may stand
at the left of a row, or at its right where nothing follows, and packed documents are told by
position ids that begin anew. Everything else is refused: it would be read as something that it is
not.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.encoding import Positions
from milepost.errors import UsageError


def positions(
    batch: int,
    length: int,
    first: int,
    device: torch.device,
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
) -> tuple[Positions, bool]:
    """Where the tokens of a call stand, and whether they are packed documents.

    Args:
        batch: rows of this call.
        length: tokens of each row.
        first: tokens in the cache.
        device: of the tokens.
        attention_mask: (batch, first + length), 0 at padding, or None for no padding.
        position_ids: (batch or 1, length), or None to count from each row's first real token.

    Raises:
        UsageError: a mask of another shape or with gaps, or position ids with gaps. Where
            torch.compile traces, values are checked in the graph, and the error is a RuntimeError.
    """
    column = torch.arange(first, first + length, device=device)
    padding = left_padding(batch, length, first, attention_mask)
    start = None if padding is None else padding[:, None].expand(batch, length)
    if position_ids is None:
        index = column if padding is None else (column - padding[:, None]).clamp(min=0)
        return Positions(index, first, length, start), False
    index = check_ids(batch, length, position_ids)
    begins = documents(index, column, first, padding)
    if begins is not None:
        of_document = torch.where(begins, column, first).cummax(dim=-1).values
        of_document = of_document.expand(batch, length)
        start = of_document if start is None else torch.maximum(start, of_document)
    beyond = 0
    # a GPU would be waited for at every step, and torch.compile knows no values
    if not torch.compiler.is_compiling() and (length > 1 or device.type == "cpu"):
        beyond = int(index.max()) + 1
    return Positions(index, first, length, start, beyond), begins is not None


def left_padding(batch: int, length: int, first: int, mask: Tensor | None) -> Tensor | None:
    """How many tokens at the left of each row are padding, (batch,); None for none anywhere."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.ndim != 2:
        got = f"{mask.ndim} axes" if isinstance(mask, Tensor) else type(mask).__name__
        raise UsageError(
            f"attention_mask must have shape (batch, tokens), 0 at padding, got {got}: encodings "
            f"that count tokens cannot take a mask of pairs. Give packed documents by position_ids"
        )
    if mask.shape != (batch, first + length):
        raise UsageError(
            f"attention_mask must have shape (batch, cached and new tokens) = "
            f"({batch}, {first + length}), got {tuple(mask.shape)}"
        )
    real = mask != 0
    compiling = torch.compiler.is_compiling()
    if not compiling and bool(real.all()):
        return None
    left = (real.cumsum(-1) == 0).sum(-1)
    right = (real.flip(-1).cumsum(-1) == 0).sum(-1)
    span = real.shape[1] - left - right
    whole = real.sum(-1) == span
    if first:
        whole = whole & (right == 0)  # what is padded at its right cannot be continued
    whole = whole | (span <= 0)
    problem = (
        "attention_mask must have its padding at the left of a row, or at the right of one that "
        "nothing follows, got zeros between ones, or new tokens that are padding{}: pad prompts at "
        "the left (tokenizer.padding_side = 'left')"
    )
    if compiling:
        torch._assert_async(whole.all(), problem.format(""))
        return left
    if not bool(whole.all()):
        raise UsageError(problem.format(f", in row {int((~whole).nonzero()[0])}"))
    return left if bool(left.any()) else None


def check_ids(batch: int, length: int, ids: Tensor) -> Tensor:
    """Position ids (batch or 1, length) as (length,) or (batch, length)."""
    if ids.ndim == 1:
        ids = ids[None]
    if ids.ndim != 2 or ids.shape[0] not in (1, batch) or ids.shape[1] != length:
        raise UsageError(
            f"position_ids must have shape (batch, tokens) = ({batch}, {length}), got "
            f"{tuple(ids.shape)}"
        )
    return ids[0] if ids.shape[0] == 1 else ids


JUMP = (
    "position_ids must go up by one within a document and begin anew with the next, got a jump "
    "upwards: a gap could be a document's border or not. Number a packed document from 0, or leave "
    "gaps to the encoding 'randomized'"
)
LATE = (
    "position_ids must go up by one where tokens are cached, got a document that begins anew: give "
    "packed documents in one call, without past_key_values"
)


def documents(index: Tensor, column: Tensor, first: int, padding: Tensor | None) -> Tensor | None:
    """Where a packed document begins, of the shape of `index`; None where all are in one."""
    if index.shape[-1] < 2:
        return None
    compiling = torch.compiler.is_compiling()
    step = index.diff(dim=-1)
    if not compiling and bool((step == 1).all()):
        return None
    if padding is not None:
        # of padding the ids mean nothing
        step = torch.where(column[1:] > padding[:, None], step, 1)
    begins = F.pad(step < 1, (1, 0))
    if compiling:
        torch._assert_async((step <= 1).all(), JUMP)
        if first:
            torch._assert_async((~begins).all(), LATE)
        return begins
    if bool((step > 1).any()):
        raise UsageError(JUMP)
    if not bool(begins.any()):
        return None
    if first:
        raise UsageError(LATE)
    return begins


def check_continues(
    index: Tensor, batch: int, first: int, last: Tensor | None, mask: Tensor | None
) -> None:
    """A `UsageError` unless position ids go on from those of the cached tokens.

    Args:
        index: (S,) or (B, S), of the new tokens.
        batch: B.
        first: how many tokens are cached.
        last: (B,), the index of each row's last cached token.
        mask: as given; a row that has had nothing but padding may begin anywhere.
    """
    if last is None or not first or torch.compiler.is_compiling():
        return
    if index.shape[-1] == 1 and index.device.type != "cpu":
        return  # a GPU would be waited for at every step
    begins = index[..., 0].expand(batch)
    wrong = begins != last + 1
    if mask is not None:
        wrong = wrong & (mask[:, :first] != 0).any(-1)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise UsageError(
            f"position_ids must go on from the cached tokens, whose last is {int(last[row])} in "
            f"row {row}, got {int(begins[row])}: number new tokens from there on, or begin a new "
            f"cache"
        )
