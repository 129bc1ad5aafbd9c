"""From `attention_mask` and `position_ids` to where each token stands and what it may see.

The ops know no masks. They know `start`, the first key that a token may see: so padding may stand
at the left of a row, or at its right where nothing follows, and packed documents are told by
position ids that begin anew. Everything else is refused: it would be read as something that it is
not.
"""

import torch
from torch import Tensor

from milepost.encoding import Positions
from milepost.errors import UsageError


def positions(
    batch: int,
    length: int,
    first: int,
    device: torch.device,
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
) -> Positions:
    """Where the tokens of a call stand.

    Args:
        batch: rows of this call.
        length: tokens of each row.
        first: tokens in the cache.
        device: of the tokens.
        attention_mask: (batch, first + length), 0 at padding, or None for no padding.
        position_ids: (batch or 1, length), or None to count from each row's first real token.

    Raises:
        UsageError: a mask of another shape or with gaps, or position ids with gaps.
    """
    column = torch.arange(first, first + length, device=device)
    padding = left_padding(batch, length, first, attention_mask)
    start = None if padding is None else padding[:, None].expand(batch, length)
    if position_ids is None:
        index = column if padding is None else (column - padding[:, None]).clamp(min=0)
        return Positions(index, first, length, start)
    index = check_ids(batch, length, position_ids)
    beyond = 0
    if not torch.compiler.is_compiling():
        begins = documents(index, first, padding)
        if begins is not None:
            start_of = (
                torch.where(begins, column, first).cummax(dim=-1).values.expand(batch, length)
            )
            start = start_of if start is None else torch.maximum(start, start_of)
        if length > 1 or device.type == "cpu":  # a GPU would be waited for at every step
            beyond = int(index.max()) + 1
    return Positions(index, first, length, start, beyond)


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
    if torch.compiler.is_compiling():
        return (real.cumsum(-1) == 0).sum(-1)
    if bool(real.all()):
        return None
    left = (real.cumsum(-1) == 0).sum(-1)
    right = (real.flip(-1).cumsum(-1) == 0).sum(-1)
    span = real.shape[1] - left - right
    whole = (real.sum(-1) == span) | (span <= 0)
    if first:
        whole = whole & (right == 0)
    if not bool(whole.all()):
        row = int((~whole).nonzero()[0])
        raise UsageError(
            f"attention_mask must have its padding at the left of a row, or at the right of one "
            f"that nothing follows, got zeros between ones, or new tokens that are padding, in row "
            f"{row}: pad prompts at the left (tokenizer.padding_side = 'left')"
        )
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


def documents(index: Tensor, first: int, padding: Tensor | None) -> Tensor | None:
    """Where a packed document begins, of the shape of `index`; None where all are in one."""
    if index.shape[-1] < 2:
        return None
    step = index.diff(dim=-1)
    if bool((step == 1).all()):
        return None
    begins = torch.zeros_like(index, dtype=torch.bool)
    begins[..., 1:] = step < 1
    if padding is not None:
        # of padding the ids mean nothing
        column = torch.arange(first, first + index.shape[-1], device=index.device)
        inside = column[1:] > padding[:, None]
        step = torch.where(inside, step.expand(inside.shape), 1)
        begins = begins.expand(inside.shape[0], -1).clone()
        begins[:, 1:] &= inside
    if bool((step > 1).any()):
        raise UsageError(
            "position_ids must go up by one within a document and begin anew with the next, got a "
            "jump upwards: a gap could be a document's border or not. Number a packed document "
            "from 0, or leave gaps to the encoding 'randomized'"
        )
    if first and bool(begins.any()):
        raise UsageError(
            "position_ids must go up by one where tokens are cached, got a document that begins "
            "anew: give packed documents in one call, without past_key_values"
        )
    return begins if bool(begins.any()) else None
