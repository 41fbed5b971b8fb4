"""Which models a slot cache can serve: read from the configuration, then tried out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from agentrl.engines.hf.cache import SlotCache
from agentrl.engines.hf.forward import cached_logits, evaluating, keep_last

__all__ = ["context_of", "why_not_cached"]

_ATTENTION = ("sdpa", "eager")
_TRIAL_TOKENS = 7
_FEWEST_TRIAL_TOKENS = 3
_DEFAULT_CONTEXT = 4096


def context_of(model: Any) -> int:
    """The longest sequence the model's configuration names."""
    config = model.config.get_text_config(decoder=True)
    return int(getattr(config, "max_position_embeddings", None) or _DEFAULT_CONTEXT)


def why_not_cached(model: Any, context_tokens: int) -> str | None:
    """Why ``model`` cannot be served from a ``SlotCache``, in words; ``None``: it can."""
    return _by_configuration(model, context_tokens) or _by_trial(
        model, max(_FEWEST_TRIAL_TOKENS, min(_TRIAL_TOKENS, context_tokens))
    )


def _by_configuration(model: Any, context_tokens: int) -> str | None:
    config = model.config.get_text_config(decoder=True)
    implementation = config._attn_implementation
    if implementation not in _ATTENTION:
        return (
            f"its attention implementation '{implementation}' takes no mask of ours; load it with "
            f"attn_implementation={' or '.join(map(repr, _ATTENTION))}"
        )
    kinds = set(getattr(config, "layer_types", None) or ())
    windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    window = min((one for one in windows if one), default=None)
    if not kinds:
        kinds = {"full_attention"} if window is None else {"sliding_attention"}
    strange = sorted(kinds - {"full_attention", "sliding_attention", "chunked_attention"})
    if strange:
        return f"it has layers of kind {', '.join(strange)}"
    if kinds != {"full_attention"} and (window is None or window < context_tokens):
        return (
            f"its attention looks back {window} tokens only and the context is {context_tokens}; "
            "with context_tokens at most the window it is served from the cache"
        )
    return None


def _by_trial(model: Any, length: int) -> str | None:
    """Compare a plain forward pass with one in pieces through the cache, padded and repeated."""
    vocabulary = model.get_input_embeddings().num_embeddings
    ids = np.arange(1, length + 1)[None] % vocabulary
    cache = SlotCache(2)
    cache.reserve(2, length)
    pieces = ((0, length - 2), (length - 2, 2), (length - 1, 1))
    try:
        with evaluating(model):
            device = next(model.parameters()).device
            plain = model(input_ids=torch.from_numpy(ids).to(device), use_cache=False).logits[0]
            for start, count in pieces:
                width = count + (start == 0)  # the first piece is padded on the left
                positions = np.zeros((1, width), np.int64)
                positions[0, width - count :] = np.arange(start, start + count)
                fed = np.zeros((1, width), np.int64)
                fed[0, width - count :] = ids[0, start : start + count]
                padding = np.arange(width)[None] < width - count
                logits = cached_logits(
                    model,
                    cache,
                    slots=np.array([1]),
                    ids=fed,
                    positions=positions,
                    padding=padding,
                    window=length,
                    dense=False,
                    keep=keep_last(model),
                )[0]
                if not _close(logits, plain[start + count - 1]):
                    return "its logits through the cache differ from those of a plain forward pass"
    except Exception as error:  # whatever a foreign model raises here means the same
        return f"a forward pass through the cache raised {type(error).__name__}: {error}"
    return None


def _close(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal up to the noise of the model's number format; NaN equals NaN (broken either way)."""
    tolerance = 1e-3 if left.dtype == torch.float32 else 5e-2
    scale = float(right.float().nan_to_num().std())
    return torch.allclose(
        left.float(), right.float(), rtol=0, atol=tolerance * scale + 1e-6, equal_nan=True
    )
