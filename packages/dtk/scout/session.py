"""Attach ScoutAttention to an unmodified Hugging Face causal model, and detach it again."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from dtk.errors import InputError
from dtk.scout.config import ScoutConfig
from dtk.scout.host import HostWorker
from dtk.scout.layer import OffloadedLayer
from dtk.scout.layout import BatchLayout
from dtk.scout.policies import RecallTimer
from dtk.scout.transformers_cache import OffloadedCacheLayer, ScoutCache, stock_layer
from dtk.scout.transformers_model import DecoderLayers, decoder_layers, predict_query

__all__ = ["ATTENTION_NAME", "MAX_HOST_THREADS", "ScoutSession", "attach"]

ATTENTION_NAME = "dtk_scout"
"""The name under which the attention function is registered with transformers."""

MAX_HOST_THREADS = 1024
"""More threads than any host has; a larger number is a slip."""

_REPLACEABLE = ("sdpa", "eager")
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_SESSION_ATTRIBUTE = "_dtk_scout_session"


class _Forward(threading.local):
    """What the forward pass under way on this thread works on."""

    def __init__(self) -> None:
        self.cache: ScoutCache | None = None
        self.padding: list[int] = []


class ScoutSession:
    """A model with ScoutAttention attached; `attach` makes it. Makes caches and runs the decode steps.

    Attributes:
        config: The settings.
        offloaded_layers: Indices of the layers whose K/V is offloaded.
        sliding_windows: The window of each layer with sliding-window attention, None for full attention.
        host: Runs the host's shares and the recalls.
    """

    def __init__(
        self, model: nn.Module, layers: DecoderLayers, config: ScoutConfig, host: HostWorker
    ) -> None:
        self.config = config
        self.offloaded_layers = _offloaded_layers(layers, config)
        self._model: Any = model
        self.sliding_windows = layers.sliding_windows
        self._layers = layers
        self.host = host
        self._intervals = _recall_intervals(config, self.offloaded_layers)
        self._forward = _Forward()

    def new_cache(self, max_new_tokens: int = 0) -> ScoutCache:
        """Return an empty cache for one `generate` call (or one conversation).

        Args:
            max_new_tokens: Tokens that will be generated, if known: the host tier then never has to grow.

        Raises:
            InputError: If the number is negative or above the model's context.
        """
        limit = self._model.config.max_position_embeddings
        if not 0 <= max_new_tokens <= limit:
            raise InputError(
                f"must be from 0 to {limit}, the model's context",
                field="max_new_tokens",
                value=max_new_tokens,
            )
        layers = [
            self._new_layer(index, max_new_tokens) if index in self.offloaded_layers else stock_layer(window)
            for index, window in enumerate(self.sliding_windows)
        ]
        return ScoutCache(self, layers)

    def _new_layer(self, index: int, max_new_tokens: int) -> OffloadedCacheLayer:
        attention: Any = self._layers.modules[index].self_attn
        position = self.offloaded_layers.index(index)
        timer = RecallTimer(self._intervals[position], phase=position)
        layer = OffloadedLayer(self.config, self.host, attention.scaling, timer, max_new_tokens)
        return OffloadedCacheLayer(layer, self._check_attention)

    def _check_attention(self) -> None:
        """Refuse to serve an attention function that would take the new tokens for the whole cache."""
        name = self._model.config._attn_implementation
        attached = getattr(self._layers.modules[0].self_attn, _SESSION_ATTRIBUTE, None) is self
        if name != ATTENTION_NAME or not attached:
            raise InputError(
                "this attention function cannot read a ScoutCache",
                field="attn_implementation",
                value=name,
                hint="use the cache inside `with attach(model, ...)` and leave its attention alone there",
            )

    # ---------------------------------------------------------------- called by the model

    def before_layer(self, index: int, hidden_states: Tensor, kwargs: dict[str, Any]) -> None:
        """Hook before decoder layer `index`: note the cache and start the next layer's host share."""
        cache = kwargs.get("cache", kwargs.get("past_key_values"))
        if isinstance(cache, ScoutCache) and cache.session is not self:
            raise InputError(
                "this ScoutCache belongs to another model or session",
                field="cache",
                hint="make one with this session's new_cache()",
            )
        self._forward.cache = cache if isinstance(cache, ScoutCache) else None
        if self._forward.cache is None:
            return
        if index == 0:
            _refuse_gradients(hidden_states)
            self._forward.cache.check_whole()
        if hidden_states.shape[1] != 1:
            return
        following = self._forward.cache.offloaded.get(index + 1)
        if following is None or not following.is_initialized or not following.offloaded.needs_selection:
            return
        source, target = self._layers.modules[index : index + 2]
        query = predict_query(
            source, target, hidden_states, kwargs["position_embeddings"], self.config.predict_norm
        )
        following.offloaded.predict(query)

    def attention(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Attention of one layer; query, key and value are [batch, heads, tokens, head size].

        Returns:
            Output [batch, tokens, query heads, head size], and None for the weights.
        """
        layer_idx: Any = module.layer_idx
        layer = self._forward.cache.offloaded.get(layer_idx) if self._forward.cache is not None else None
        if layer_idx == len(self._layers.modules) - 1:
            # A session must not keep a cache alive that its user has dropped.
            self._forward.cache = None
        if layer is None:
            output: Tensor = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)[0]
            return output, None
        if layer_idx == self.offloaded_layers[0]:
            self._forward.padding = _left_padding(attention_mask, query.shape[0], layer)
        if query.shape[2] == 1 and layer.is_initialized:
            attended = layer.offloaded.attend(query[:, :, 0], key[:, :, 0], value[:, :, 0])
            return attended[:, None].to(query.dtype), None
        return self._attend_many(layer, module, query, key, value, attention_mask, kwargs), None

    def _attend_many(
        self,
        layer: OffloadedCacheLayer,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        kwargs: dict[str, Any],
    ) -> Tensor:
        """Attend densely for a prompt, or for several tokens behind one; then (re)build the tiers."""
        if layer.is_initialized:
            past_key, past_value = layer.offloaded.dense_kv()
            key, value = torch.cat([past_key, key], dim=2), torch.cat([past_value, value], dim=2)
        output: Tensor = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)[0]
        layout = BatchLayout(
            padding=list(self._forward.padding),
            tokens=[key.shape[2] - padding for padding in self._forward.padding],
            rows_per_sequence=key.shape[1] if self.config.selection == "kv_head" else 1,
        )
        layer.prefill(key, value, query[:, :, -1], layout)
        return output


@contextmanager
def attach(
    model: nn.Module, config: ScoutConfig | None = None, *, host_threads: int = 1
) -> Iterator[ScoutSession]:
    """Attach ScoutAttention to a Hugging Face causal model for the length of a `with` block.

    Calls of the model with a cache from `session.new_cache()` decode with the offloaded cache; calls with any
    other cache, or none, run transformers' SDPA attention. The model's weights and code are not touched, and
    everything is undone at the end of the block.

    Args:
        model: A Llama, Mistral, Qwen2 or Qwen3 causal model in evaluation use.
        config: The settings; the defaults if None.
        host_threads: CPU threads that attend to the host's blocks.

    Raises:
        InputError: If the model type or its attention function is not supported, if no layer can be
            offloaded, or if the settings do not fit the model.
    """
    config = ScoutConfig() if config is None else config
    # Typed callers cannot get these two wrong; everybody else can.
    if not isinstance(config, ScoutConfig):
        raise InputError("must be a ScoutConfig", field="config", value=config)
    if host_threads not in range(1, MAX_HOST_THREADS + 1):
        raise InputError(
            f"must be a whole number from 1 to {MAX_HOST_THREADS}", field="host_threads", value=host_threads
        )
    layers = decoder_layers(model)
    _check_weights(model)
    hf_model: Any = model
    previous = hf_model.config._attn_implementation
    if previous == ATTENTION_NAME:
        raise InputError(
            "ScoutAttention is attached to this model already", field="attn_implementation", value=previous
        )
    if previous not in _REPLACEABLE:
        raise InputError(
            "cannot replace this attention function",
            field="attn_implementation",
            value=previous,
            hint=f"load the model with attn_implementation set to one of: {', '.join(_REPLACEABLE)}",
        )
    AttentionInterface.register(ATTENTION_NAME, _attention)
    AttentionMaskInterface.register(ATTENTION_NAME, sdpa_mask)
    with ExitStack() as undo:
        session = ScoutSession(model, layers, config, undo.enter_context(HostWorker(host_threads)))
        for index, module in enumerate(layers.modules):
            setattr(module.self_attn, _SESSION_ATTRIBUTE, session)
            undo.callback(delattr, module.self_attn, _SESSION_ATTRIBUTE)
            undo.callback(_install_hook(session, index, module).remove)
        undo.callback(hf_model.set_attn_implementation, previous)
        hf_model.set_attn_implementation(ATTENTION_NAME)
        yield session


def _check_weights(model: nn.Module) -> None:
    """Refuse weights of a type that the kernels lack, or on several devices (copies are ordered on one)."""
    for weight in model.parameters():
        if weight.is_floating_point() and weight.dtype not in _DTYPES:
            raise InputError(
                "weights of this type are not supported",
                field="model",
                value=weight.dtype,
                hint=f"use {', '.join(str(dtype) for dtype in _DTYPES)}",
            )
    devices = sorted({str(weight.device) for weight in model.parameters()})
    if len(devices) > 1:
        raise InputError("must lie on one device", field="model", value=", ".join(devices))


def _refuse_gradients(hidden_states: Tensor) -> None:
    if torch.is_grad_enabled() and hidden_states.requires_grad:
        raise InputError(
            "a ScoutCache cannot be differentiated through", hint="wrap the call in torch.no_grad()"
        )


def _install_hook(session: ScoutSession, index: int, module: nn.Module) -> Any:
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        session.before_layer(index, args[0] if args else kwargs["hidden_states"], kwargs)

    return module.register_forward_pre_hook(hook, with_kwargs=True)


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """The function that transformers calls; the session that attached it does the work."""
    session: ScoutSession = getattr(module, _SESSION_ATTRIBUTE)
    return session.attention(module, query, key, value, attention_mask, **kwargs)


def _offloaded_layers(layers: DecoderLayers, config: ScoutConfig) -> list[int]:
    """Return the layers to offload: full attention, behind the dense ones."""
    offloaded = [
        i for i, window in enumerate(layers.sliding_windows) if window is None and i >= config.dense_layers
    ]
    if not offloaded:
        full = layers.sliding_windows.count(None)
        raise InputError(
            f"leaves no layer to offload of {len(layers.modules)} layers, {full} with full attention",
            field="dense_layers",
            value=config.dense_layers,
            hint="leave fewer layers dense, for example 1",
        )
    return offloaded


def _recall_intervals(config: ScoutConfig, offloaded: list[int]) -> list[int | None]:
    interval = config.recall_interval
    if not isinstance(interval, tuple):
        return [interval] * len(offloaded)
    if len(interval) != len(offloaded):
        raise InputError(
            f"needs one interval for each of the {len(offloaded)} offloaded layers",
            field="recall_interval",
            value=list(interval),
        )
    return list(interval)


def _left_padding(mask: Tensor | None, batch_size: int, layer: OffloadedCacheLayer) -> list[int]:
    """Return the padding left of each sequence, read off the last query's row of the mask.

    Raises:
        InputError: If real tokens are not one run at the right end, or not those that the cache holds.
    """
    if mask is None:
        padding = [0] * batch_size
    else:
        visible = mask[:, 0, -1].cpu()
        padding = (visible.shape[1] - visible.sum(dim=1)).tolist()
        column = torch.arange(visible.shape[1], device="cpu")
        if not torch.equal(visible, column >= torch.tensor(padding, device="cpu")[:, None]):
            raise InputError(
                "the batch must be padded on the left only",
                field="attention_mask",
                hint="set tokenizer.padding_side to 'left'",
            )
        padding = padding * (batch_size // len(padding))
    if layer.is_initialized and not layer.offloaded.layout.continues_with(padding):
        raise InputError(
            f"does not match the cache, whose sequences have padding {layer.offloaded.layout.padding}",
            field="attention_mask",
            value=str(padding),
        )
    return padding
