"""A pretrained model's own RoPE: its base, its scaling, and its angles to the bit."""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from milepost.encoding import Host, Positions
from milepost.encodings.rope import Rope
from milepost.errors import UsageError

FOLLOWS_THE_LENGTH = ("dynamic", "longrope")
"""Kinds whose angles depend on the length of the text at hand, so that cached keys go stale."""


class HostRope(Rope):
    """RoPE by the `rope_parameters` of a configuration (`milepost.encodings.rope`).

    Angles are taken in fp32, as transformers does: at position 10⁴ that is 10⁻³ off, and the model
    was trained so. cos and sin are kept in fp32, where transformers rounds them to the model's
    dtype.
    """

    def __init__(self, host: Host, config: PreTrainedConfig) -> None:
        parameters: dict[str, Any] = dict(config.rope_parameters or {})
        self.kind = parameters.get("rope_type", "default")
        if self.kind in FOLLOWS_THE_LENGTH:
            raise UsageError(
                f"the host's rope_type is {self.kind!r}, whose angles follow the length of the "
                f"text at hand, so that cached keys would go stale: give another rope_type, or an "
                f"encoding such as 'yarn' with a base of its own"
            )
        if parameters.get("partial_rotary_factor", 1.0) != 1.0:
            raise UsageError(
                f"the host rotates a part of each head (partial_rotary_factor = "
                f"{parameters['partial_rotary_factor']}), which is not supported: take a host that "
                f"rotates all of it"
            )
        super().__init__(host, base=float(parameters.get("rope_theta", 10_000.0)))
        self.config = config

    def angles(self, device: torch.device) -> tuple[Tensor, float]:
        """θ_f in radians per token, (D/2,), fp32, and the factor on cos and sin."""
        if self.kind != "default":
            frequencies, factor = ROPE_INIT_FUNCTIONS[self.kind](self.config)
            return frequencies.float().to(device), factor
        # on the CPU, where transformers makes them: another device may round otherwise
        exponent = torch.arange(0, self.host.head_dim, 2).float() / self.host.head_dim
        return (1.0 / self.base**exponent).to(device), 1.0

    def begin(self, x: Tensor, positions: Positions) -> tuple[Tensor, Any]:
        """The state is (cos, sin), made once for all layers."""
        index = positions.index if positions.index.ndim == 2 else positions.index[None]
        frequencies, factor = self.angles(x.device)
        with torch.autocast(x.device.type, enabled=False):
            angle = index[:, None, :, None].float() * frequencies
            dtype = torch.promote_types(x.dtype, torch.float32)
            return x, ((angle.cos() * factor).to(dtype), (angle.sin() * factor).to(dtype))
