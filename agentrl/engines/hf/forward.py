"""Forward passes of a transformers causal language model over waves of rows."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from agentrl.engines.hf.cache import SlotCache
from agentrl.engines.hf.drawing import draw, uniforms
from agentrl.engines.waves import Drawn, Row, Wave

__all__ = ["CachedRunner", "PlainRunner", "cached_logits", "evaluating", "keep_last"]


class CachedRunner:
    """Forward passes over a ``SlotCache``: only new tokens are computed.

    Args:
        model: Shared with its owner; only its mode is touched, for the length of a pass.
        slots: Rows of the cache.
    """

    keeps_prefix = True

    def __init__(self, model: Any, *, slots: int) -> None:
        self._model = model
        self._keep = keep_last(model)
        self._cache = SlotCache(slots)

    def run(self, wave: Wave) -> Drawn:
        rows, cache = wave.rows, self._cache
        window = wave.window or -(-max(row.end for row in rows) // 32) * 32
        batch = _Batch(rows, wave.height, wave.width)
        last = max([rows[-1].slot, *(copy.target for copy in wave.copies)])
        with evaluating(self._model):
            cache.reserve(last + 1, window)
            for copy in wave.copies:
                cache.copy(copy.source, copy.target, copy.length)
            logits = cached_logits(
                self._model,
                cache,
                slots=batch.slots,
                ids=batch.ids,
                positions=batch.positions,
                padding=batch.padding,
                window=window,
                dense=batch.dense,
                keep=self._keep,
            )
            places = torch.from_numpy(batch.places).to(logits.device)
            if bool(logits[places, 0].isnan().any()):
                cache.clear()  # NaN in a key or value would outlive the rows that made it
            return _draw(logits, rows, batch.places)


class _Batch:
    """The arrays of a pass: rows padded on the left, so that every last token is in one column.

    Where the slots lie close together the batch is a range of the cache's rows, idle ones included:
    computing a few idle rows is cheaper than gathering the busy ones. A batch of fixed height is
    always gathered; rows of padding then stand in the first row's slot, which they do not change.
    """

    def __init__(self, rows: Sequence[Row], height: int, width: int) -> None:
        slots = np.array([row.slot for row in rows])
        first, span = slots[0], slots[-1] - slots[0] + 1
        self.dense = not height and bool((span - len(rows)) * width <= len(rows))
        if self.dense:
            self.slots, self.places = np.arange(first, first + span), slots - first
        else:
            self.slots = np.full(height or len(rows), first)
            self.slots[: len(rows)] = slots
            self.places = np.arange(len(rows))
        shape = (len(self.slots), width)
        self.ids = np.zeros(shape, np.int64)
        self.positions = np.zeros(shape, np.int64)
        self.padding = np.ones(shape, np.bool_)
        if width == 1:
            self.ids[self.places, 0] = [row.token_ids[0] for row in rows]
            self.positions[self.places, 0] = [row.start for row in rows]
            self.padding[self.places, 0] = False
            return
        for place, row in zip(self.places, rows, strict=True):
            begin = width - len(row.token_ids)
            self.ids[place, begin:] = row.token_ids
            self.positions[place, begin:] = np.arange(row.start, row.end)
            self.padding[place, begin:] = False


def cached_logits(
    model: Any,
    cache: SlotCache,
    *,
    slots: np.ndarray[Any, Any],
    ids: np.ndarray[Any, Any],
    positions: np.ndarray[Any, Any],
    padding: np.ndarray[Any, Any],
    window: int,
    dense: bool,
    keep: Mapping[str, Any],
) -> torch.Tensor:
    """Logits behind the last column, shape (B, V).

    Args:
        slots: Row of the cache per sequence, shape (B,).
        ids, positions, padding: Shape (B, W). Padding has position 0, sees position 0, and is
            written to the dustbin.
        keep: Arguments that make the model compute the last column's logits only.
    """
    device = next(model.parameters()).device
    at = torch.from_numpy(positions).to(device)
    written = torch.from_numpy(np.where(padding, cache.capacity, positions)).to(device)
    cache.aim(torch.from_numpy(slots).to(device), written, window, dense)
    seen = torch.arange(window, device=device) <= at[:, None, :, None]
    mask = torch.zeros(seen.shape, dtype=model.dtype, device=device)
    mask.masked_fill_(~seen, torch.finfo(model.dtype).min)
    logits: torch.Tensor = model(
        input_ids=torch.from_numpy(ids).to(device),
        attention_mask=mask,
        position_ids=at,
        past_key_values=cache,
        use_cache=True,
        **keep,
    ).logits
    return logits[:, -1]


class PlainRunner:
    """Forward passes without a cache: every row is computed whole, for every token.

    Right for every causal model and slow; for those whose state a ``SlotCache`` cannot hold.
    """

    keeps_prefix = False

    def __init__(self, model: Any) -> None:
        self._model = model
        self._chooses = bool(keep_last(model))

    def run(self, wave: Wave) -> Drawn:
        rows = wave.rows
        device = next(self._model.parameters()).device
        ids = np.zeros((len(rows), wave.width), np.int64)
        for place, row in enumerate(rows):
            ids[place, : row.end] = row.token_ids  # padded on the right, where nothing looks
        ends = torch.tensor([row.end - 1 for row in rows], device=device)
        columns, place_of_end = torch.unique(ends, return_inverse=True)
        keep = {"logits_to_keep": columns} if self._chooses else {}
        with evaluating(self._model):
            logits = self._model(
                input_ids=torch.from_numpy(ids).to(device), use_cache=False, **keep
            ).logits
            last = logits[torch.arange(len(rows), device=device), place_of_end if keep else ends]
            return _draw(last, rows, np.arange(len(rows)))


def _draw(logits: torch.Tensor, rows: Sequence[Row], places: np.ndarray[Any, Any]) -> Drawn:
    """Draw for the rows that are complete; the others get (-1, 0)."""
    drawing = [number for number, row in enumerate(rows) if row.draws]
    ids, logprobs = [-1] * len(rows), [0.0] * len(rows)
    if drawing:
        at = places[drawing]
        if len(at) != len(logits):
            logits = logits[torch.from_numpy(at).to(logits.device)]
        uniform = uniforms(
            [rows[number].key for number in drawing], [rows[number].place for number in drawing]
        )
        drawn = draw(logits, [rows[number].sampling for number in drawing], uniform)
        for number, token, logprob in zip(drawing, *drawn, strict=True):
            ids[number], logprobs[number] = token, logprob
    return Drawn(ids, logprobs)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Inference mode, and every module in eval mode; each module's own mode is put back."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True


def keep_last(model: Any) -> dict[str, Any]:
    """The argument that asks for the last logits only; empty if the model has none."""
    plain = model.get_base_model() if hasattr(model, "get_base_model") else model
    known = inspect.signature(plain.forward).parameters
    return {"logits_to_keep": 1} if "logits_to_keep" in known else {}
