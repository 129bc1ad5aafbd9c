"""Decoding with a cache: each new token costs one pass over the memory, not over the text."""

import torch
from torch import Tensor

from milepost.cache import Cache
from milepost.errors import UsageError
from milepost.model import Decoder
from milepost.shapes import check_number, check_tensor


@torch.inference_mode()
def generate(
    model: Decoder,
    tokens: Tensor,
    count: int,
    *,
    temperature: float = 0.0,
    padding: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Continue `tokens` (B, S) by `count` tokens, and return those, (B, count).

    Args:
        model: in evaluation mode, unless dropout is wanted.
        tokens: prompts; rows of different lengths are padded on the left.
        count: how many tokens to add.
        temperature: 0 takes the likeliest token; above 0 samples from softmax(logits / it).
        padding: (B,) how many tokens at the left of each row are padding.
        generator: of the samples; PyTorch's global one if None.

    Raises:
        UsageError: an empty prompt, a count that is negative or not whole, a temperature that is
            negative or not finite, or what `Decoder` refuses.
    """
    check_tensor("tokens", tokens)
    if tokens.ndim != 2 or tokens.shape[1] == 0:
        raise UsageError(f"tokens must be (batch, at least 1), got {tuple(tokens.shape)}")
    if not isinstance(count, int) or isinstance(count, bool):
        raise UsageError(f"count must be a whole number, got {count!r}")
    check_number("temperature", temperature)
    if count < 0 or temperature < 0:
        raise UsageError(
            f"count and temperature must not be negative, got {count} and {temperature}"
        )
    cache, new = Cache(), tokens[:, :0]
    for _ in range(count):
        logits = model(tokens, cache=cache, padding=padding)[:, -1]
        if temperature == 0:
            tokens = logits.argmax(-1, keepdim=True)
        else:
            chances = (logits.float() / temperature).softmax(-1)
            tokens = torch.multinomial(chances, 1, generator=generator)
        new = torch.cat((new, tokens), dim=1)
    return new
