"""A policy as servers of other processes are given it: whole, without its adapter, the adapter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl.models.loading import save_policy
from agentrl.models.lora import base_state, has_adapter, plain_state, save_adapter

__all__ = ["ServedPolicy"]


class ServedPolicy:
    """A model and its tokenizer, written out as they are at that moment; neither is changed.

    Args:
        model: A causal language model of transformers, perhaps with an adapter (``models.lora``).
        tokenizer: Its tokenizer; ``None``: nothing is written of one.
    """

    def __init__(self, model: Any, tokenizer: Any = None) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._dtype = str(model.dtype).removeprefix("torch.")

    @property
    def size(self) -> int:
        """Bytes of the weights."""
        return sum(one.numel() * one.element_size() for one in self._model.parameters())

    @property
    def lora_rank(self) -> int:
        """Of its adapter; 0: it has none."""
        if not has_adapter(self._model):
            return 0
        return max(int(one.r) for one in self._model.peft_config.values())

    @property
    def context_tokens(self) -> int | None:
        """Longest prompt plus answer that the model was made for."""
        told = self._model.config.get_text_config(decoder=True)
        return getattr(told, "max_position_embeddings", None)

    def save(self, folder: Path) -> None:
        """Write a whole model into ``folder``, its adapter merged."""
        save_policy(folder, self._model, self._tokenizer, self._dtype)

    def save_base(self, folder: Path) -> None:
        """Write the model as it is without its adapter."""
        save_policy(folder, self._model, self._tokenizer, self._dtype, base_state(self._model))

    def save_adapter(self, folder: Path) -> None:
        """Write the adapter alone, in peft's format."""
        save_adapter(self._model, folder)

    def state(self) -> Mapping[str, Any]:
        """The weights by name, the adapter merged, where they are now."""
        return plain_state(self._model)
