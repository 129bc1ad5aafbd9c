"""What a layer remembers, in transformers' caches: keys, values, and what else an encoding says.

A `DynamicCache` or `StaticCache` that is made for a `MilepostConfig` has these layers by itself,
and with them all that caches are asked for: reordering (beams), cropping (assisted decoding),
repeating, selecting, moving off the device and back, and resetting.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer, StaticLayer

from milepost.cache import running_sum
from milepost.errors import UsageError

KEPT = 128
"""How many tokens of a token shift's past are kept, and so how far a cache can be cropped."""


class _Extras:
    """What a layer remembers beside keys and values, with the batch on axis 0.

    It is mixed into a layer of transformers, which mypy does not see: hence `type: ignore`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.extra: dict[str, Tensor] = {}
        """By name (B, heads, time, ...)."""
        self.recent: dict[str, Tensor] = {}
        """By name the latest tokens before a token shift, (B, heads, at most KEPT + 1, D)."""
        self.packed = False
        """Whether packed documents are in here, none of which can be continued."""
        self.last: Tensor | None = None
        """(B,), the index of each row's last token."""

    def _each(self, change: Callable[[Tensor], Tensor]) -> None:
        for group in (self.extra, self.recent):
            group.update({name: change(tensor) for name, tensor in group.items()})
        if self.last is not None:
            self.last = change(self.last)

    def _extended(
        self, new: dict[str, Tensor], sums: Mapping[str, Tensor] | None, first: int
    ) -> dict[str, Tensor]:
        """`new` with the running sums of `sums`, after the `first` tokens that are here."""
        found = dict(new)
        for name, tensor in (sums or {}).items():
            before = self.extra.get(name)
            found[name] = running_sum(tensor, None if before is None else before[:, :, :first])
        for name in found:
            if first and name not in self.extra:
                raise UsageError(
                    f"past_key_values holds tokens of another model, without the {name} of this "
                    f"one: begin a new cache"
                )
        return found

    def previous(self, name: str, tensor: Tensor) -> Tensor:
        """Each token's predecessor on axis 2: the last one of the call before, or zeros."""
        before = self.recent.get(name)
        if before is None:
            before = torch.zeros_like(tensor[:, :, :1])
        shifted = torch.cat((before[:, :, -1:], tensor[:, :, :-1]), dim=2)
        self.recent[name] = torch.cat((before, tensor), dim=2)[:, :, -KEPT - 1 :]
        return shifted

    def _crop_recent(self, count: int) -> None:
        for name, tensor in self.recent.items():
            if tensor.shape[2] <= count:
                raise UsageError(
                    f"a model with kv_shift keeps the last {KEPT} tokens, and its cache can be "
                    f"cropped by fewer than {tensor.shape[2]}, got {count}: begin a new cache"
                )
            self.recent[name] = tensor[:, :, :-count]

    def reset(self) -> None:
        super().reset()  # type: ignore[misc]
        self.extra, self.recent, self.packed, self.last = {}, {}, False, None

    def reorder_cache(self, beam_idx: Tensor) -> None:
        super().reorder_cache(beam_idx)  # type: ignore[misc]
        self._each(lambda tensor: tensor.index_select(0, beam_idx.to(tensor.device)))

    def offload(self) -> None:
        super().offload()  # type: ignore[misc]
        self._each(lambda tensor: tensor.to("cpu", non_blocking=True))

    def prefetch(self) -> None:
        super().prefetch()  # type: ignore[misc]
        if self.is_initialized:  # type: ignore[attr-defined]
            place = self.device  # type: ignore[attr-defined]
            self._each(lambda tensor: tensor.to(place, non_blocking=True))


class MilepostDynamicLayer(_Extras, DynamicLayer):
    """A layer that grows with the text."""

    _layer_type = "milepost"

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        *args: Any,
        extra: dict[str, Tensor] | None = None,
        sums: Mapping[str, Tensor] | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor]:
        """Append keys, values, `extra` and the running sums of `sums`; `extra` then holds them all.

        `extra` is written to, because the caller's cache may send this layer off the device before
        it returns.
        """
        new = self._extended(extra or {}, sums, self.get_seq_length())
        keys, values = super().update(key_states, value_states)
        for name, tensor in new.items():
            old = self.extra.get(name)
            self.extra[name] = tensor if old is None else torch.cat((old, tensor), dim=2)
        if extra is not None:
            extra.update(self.extra)
        return keys, values

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last `-tokens_to_remove` tokens."""
        count = -tokens_to_remove
        if count > 0:
            self._crop_recent(count)
        super().crop(tokens_to_remove)
        if count > 0:
            self.extra = {name: tensor[:, :, :-count] for name, tensor in self.extra.items()}
            if self.last is not None:
                self.last = self.last - count

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row."""
        super().batch_repeat_interleave(repeats)
        self._each(lambda tensor: tensor.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some of the rows."""
        super().batch_select_indices(indices)
        self._each(lambda tensor: tensor[indices])


class MilepostStaticLayer(_Extras, StaticLayer):
    """A layer in memory that is taken once. What it hands out are views of the part in use.

    Its length is a number, not a tensor, so it saves memory's growth, and no compilation.
    """

    _layer_type = "milepost"
    is_compileable = False

    def __init__(self, max_cache_len: int, **kwargs: Any) -> None:
        super().__init__(max_cache_len=max_cache_len, **kwargs)
        self.length = 0

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        *args: Any,
        extra: dict[str, Tensor] | None = None,
        sums: Mapping[str, Tensor] | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor]:
        """As `MilepostDynamicLayer.update`."""
        widths = (key_states.shape[-1], value_states.shape[-1])
        # transformers may have made room beforehand, not knowing how wide values are
        if not self.is_initialized or (
            not self.length and (self.keys.shape[-1], self.values.shape[-1]) != widths
        ):
            self.lazy_initialization(key_states, value_states)
        first, last = self.length, self.length + key_states.shape[2]
        if last > self.max_cache_len:
            raise UsageError(
                f"the static cache holds max_cache_len = {self.max_cache_len} tokens, got "
                f"{last}: make it longer, or take a DynamicCache"
            )
        new = self._extended(extra or {}, sums, first)
        for name, tensor in new.items():
            if name not in self.extra:
                B, H, _, *rest = tensor.shape
                self.extra[name] = tensor.new_zeros(B, H, self.max_cache_len, *rest)
        stored = {"keys": self.keys, "values": self.values, **self.extra}
        for name, tensor in {"keys": key_states, "values": value_states, **new}.items():
            stored[name][:, :, first:last] = tensor
        self.length = last
        if extra is not None:
            extra.update({name: tensor[:, :, :last] for name, tensor in self.extra.items()})
        return self.keys[:, :, :last], self.values[:, :, :last]

    def get_seq_length(self) -> int:
        """How many tokens it holds."""
        return self.length

    def reset(self) -> None:
        """Begin anew in the same memory."""
        super().reset()
        self.length = 0


class LayerMemory:
    """One layer of a cache of transformers', as `milepost.attention` asks for it."""

    def __init__(self, cache: Cache, layer: int) -> None:
        self.cache = cache
        self.layer = layer

    def extend(
        self, new: Mapping[str, Tensor], sums: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Append, and return all that is remembered (`milepost.cache.LayerCache.extend`)."""
        extra = {name: tensor for name, tensor in new.items() if name not in ("key", "value")}
        key, value = self.cache.update(new["key"], new["value"], self.layer, extra=extra, sums=sums)
        return {"key": key, "value": value, **extra}

    def previous(self, name: str, tensor: Tensor) -> Tensor:
        """Each token's predecessor (`milepost.cache.LayerCache.previous`)."""
        return self.cache.layers[self.layer].previous(name, tensor)


def prepare(cache: Any, layers: int) -> None:
    """Make sure that every layer of a caller's cache can remember what an encoding says.

    A `DynamicCache()` that was made without a config gets our layers as long as it is empty.

    Raises:
        UsageError: a cache of another kind, or one that holds another model's tokens.
    """
    if not isinstance(cache, Cache):
        raise UsageError(
            f"past_key_values must be a cache of transformers, got {type(cache).__name__}: leave "
            f"it out, or make DynamicCache(config=model.config)"
        )
    if cache.layer_class_to_replicate is DynamicLayer:
        while len(cache.layers) < layers:
            cache.layers.append(MilepostDynamicLayer())
    for i, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer and not layer.is_initialized:
            cache.layers[i] = MilepostDynamicLayer()
        elif not isinstance(layer, MilepostDynamicLayer | MilepostStaticLayer):
            raise UsageError(
                f"past_key_values must have layers that keep what an encoding says, got "
                f"{type(layer).__name__} in layer {i}: make DynamicCache(config=model.config) or "
                f"StaticCache(config=model.config, max_cache_len=...)"
            )
    if len(cache.layers) != layers:
        raise UsageError(
            f"past_key_values must have the model's {layers} layers, got {len(cache.layers)}: make "
            f"DynamicCache(config=model.config)"
        )
