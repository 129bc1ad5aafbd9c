"""How a tensor may lie in memory, for the tests of fused backends."""

import torch

LAYOUTS = {
    "transposed": lambda x: x.transpose(0, -2).contiguous().transpose(0, -2),
    "sliced": lambda x: torch.cat([torch.full_like(x, torch.nan), x], -2)[..., x.shape[-2] :, :],
    "in a wider row": lambda x: torch.cat([x, torch.full_like(x, torch.nan)], -1)[
        ..., : x.shape[-1]
    ],
    "every other number": lambda x: torch.stack([x, torch.full_like(x, torch.nan)], -1)[..., 0],
    "last axis first": lambda x: x.movedim(-1, 0).contiguous().movedim(0, -1),
}
