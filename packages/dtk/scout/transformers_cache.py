"""Adapter to transformers' cache classes (5.20 to 5.24): what `generate` and a model's attention see.

An offloaded layer's `update` returns the *new* keys and values only; the attention function that `attach`
installs takes the rest from the tiers. A stock attention function would silently attend to nothing but the
new token, so `update` refuses to run under one.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from dtk.errors import InputError
from dtk.scout.host import HostWorker
from dtk.scout.layer import OffloadedLayer
from dtk.scout.layout import BatchLayout

__all__ = ["OffloadedCacheLayer", "ScoutCache"]


class OffloadedCacheLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer of `ScoutCache` whose K/V is offloaded: transformers' view of an `OffloadedLayer`.

    Args:
        layer: The layer's tiers and decode step.
        check_attention: Raises if the model would not use the attention function that can read this layer.
    """

    is_sliding = False
    is_croppable = False
    supports_early_init = False

    def __init__(self, layer: OffloadedLayer, check_attention: Callable[[], None]) -> None:
        super().__init__()
        self.offloaded = layer
        self._check_attention = check_attention

    @property
    def batch_size(self) -> int:
        """Sequences in the batch, -1 before the first forward pass."""
        return self.offloaded.layout.batch_size if self.is_initialized else -1

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the prompt decides the sizes of the tiers."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Hand the new tokens straight on to the attention function."""
        self._check_attention()
        return key_states, value_states

    def prefill(self, keys: Tensor, values: Tensor, last_query: Tensor, layout: BatchLayout) -> None:
        """See `OffloadedLayer.prefill`."""
        self.offloaded.prefill(keys, values, last_query, layout)
        self.is_initialized = True

    def get_seq_length(self) -> int:
        """Tokens so far, padding included, as transformers counts them."""
        return self.offloaded.layout.padded_tokens if self.is_initialized else 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the mask that `query_length` more tokens need."""
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        """-1: the host tier grows."""
        return -1

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Follow the beams of a beam search."""
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the given sequences, in the given order."""
        if self.is_initialized:
            self.offloaded.select_sequences(indices.long().cpu())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every sequence `repeats` times, the copies side by side."""
        if self.is_initialized:
            self.batch_select_indices(torch.arange(self.batch_size, device="cpu").repeat_interleave(repeats))


class CacheOwner(Protocol):
    """What a cache needs of the session that made it."""

    @property
    def host(self) -> HostWorker:
        """The host worker, shared by all caches of the session."""


class ScoutCache(Cache):  # type: ignore[misc]
    """A cache for `generate(past_key_values=...)`; `ScoutSession.new_cache` makes it.

    Attributes:
        session: The session that made it, the only one that can run it.
        offloaded: The offloaded layers by layer index; the other layers are transformers' own.
    """

    def __init__(self, session: CacheOwner, layers: Sequence[CacheLayerMixin]) -> None:
        super().__init__(layers=list(layers))
        self.session = session
        self.offloaded: dict[int, OffloadedCacheLayer] = {
            index: layer for index, layer in enumerate(layers) if isinstance(layer, OffloadedCacheLayer)
        }

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy the K/V and all that goes with it; the copy belongs to the same session.

        A prompt's cache can so serve several continuations.
        """
        for layer in self._ready():
            layer.offloaded.settle()
        memo |= {id(shared): shared for shared in (self.session, self.session.host)}
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__dict__.update({name: deepcopy(value, memo) for name, value in vars(self).items()})
        return copied

    def check_whole(self) -> None:
        """Refuse to go on where a forward pass broke off, for some layers then lack its tokens.

        Raises:
            InputError: If the layers do not all hold the same tokens.
        """
        lengths = {layer.get_seq_length() for layer in self.layers}
        if len(lengths) > 1 or any(layer.offloaded.has_open_step for layer in self._ready()):
            raise InputError(
                "a forward pass over this ScoutCache did not end, so its layers hold different tokens",
                field="cache",
                hint="make a new one with session.new_cache()",
            )

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse, before any layer has changed: blocks that have closed are not opened again."""
        raise InputError(
            "a ScoutCache cannot be cropped",
            field="tokens_to_remove",
            value=tokens_to_remove,
            hint="assisted decoding needs a stock cache",
        )

    def reset(self) -> None:
        """Refuse, before any layer has changed: a new cache costs nothing more."""
        raise InputError("a ScoutCache cannot be reset", hint="make a new one with session.new_cache()")

    @property
    def device_kv_bytes(self) -> int:
        """Bytes of the device tier now: budget and tail blocks of the offloaded layers."""
        return sum(layer.offloaded.device_tier.num_bytes for layer in self._ready())

    @property
    def dense_kv_bytes(self) -> int:
        """Bytes of K/V now in the layers that are not offloaded, which keep all of it on the device."""
        stock = [layer for index, layer in enumerate(self.layers) if index not in self.offloaded]
        return sum(x.nbytes for layer in stock if layer.is_initialized for x in (layer.keys, layer.values))

    @property
    def host_kv_bytes(self) -> int:
        """Bytes of K/V in host memory now."""
        return sum(layer.offloaded.host_tier.num_bytes for layer in self._ready())

    @property
    def digest_bytes(self) -> int:
        """Bytes of block digests on the device now."""
        return sum(layer.offloaded.key_min.nbytes + layer.offloaded.key_max.nbytes for layer in self._ready())

    def _ready(self) -> list[OffloadedCacheLayer]:
        return [layer for layer in self.offloaded.values() if layer.is_initialized]


def stock_layer(sliding_window: int | None) -> CacheLayerMixin:
    """Return transformers' own cache layer for a layer that is not offloaded."""
    return (
        DynamicLayer() if sliding_window is None else DynamicSlidingWindowLayer(sliding_window=sliding_window)
    )
