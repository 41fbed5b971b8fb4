"""A preallocated key/value cache whose rows have their own lengths.

Speaks transformers' ``Cache`` interface, as far as a model's layers use it: ``update`` writes the
new keys and values at stated positions of stated rows and returns the window to attend to. The
attention mask is the caller's.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import Cache

__all__ = ["SlotCache"]

SMALLEST_CAPACITY = 256


class SlotCache(Cache):  # type: ignore[misc]
    """Buffers of shape (rows, heads, capacity + 1, head size) per layer, doubled when needed.

    The position behind the last is a dustbin: padding is written there and never read. What is
    never written is 0, since a masked position still takes part as 0 times its value.

    Args:
        most_rows: Upper bound of the rows, reached by doubling.
    """

    def __init__(self, most_rows: int) -> None:
        super().__init__(layers=[])
        self._most_rows = most_rows
        self._buffers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.clear()

    def clear(self) -> None:
        """Drop all keys and values, and their memory."""
        self._buffers.clear()
        self.rows = self.capacity = 0

    def reserve(self, rows: int, length: int) -> None:
        """Make room for ``rows`` rows of ``length`` positions; what is held is kept."""
        new_rows, new_capacity = self.rows, self.capacity
        if rows > new_rows:
            new_rows = min(1 << (rows - 1).bit_length(), self._most_rows)
        if length > new_capacity:
            new_capacity = max(SMALLEST_CAPACITY, 1 << (length - 1).bit_length())
        if (new_rows, new_capacity) == (self.rows, self.capacity):
            return
        for layer, (keys, values) in list(self._buffers.items()):
            self._buffers[layer] = (
                _grown(keys, new_rows, new_capacity, self.capacity),
                _grown(values, new_rows, new_capacity, self.capacity),
            )
        self.rows, self.capacity = new_rows, new_capacity

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` positions of one row to another."""
        for keys, values in self._buffers.values():
            keys[target, :, :length] = keys[source, :, :length]
            values[target, :, :length] = values[source, :, :length]

    def aim(self, rows: torch.Tensor, positions: torch.Tensor, window: int, dense: bool) -> None:
        """Say where the next forward pass writes and reads.

        Args:
            rows: Row of each sequence of the batch, shape (B,).
            positions: Where each token is written, shape (B, W); ``capacity`` is the dustbin.
            window: Positions that are read.
            dense: ``rows`` are consecutive, so that no copy is needed to read them.
        """
        self._write_rows, self._positions, self._window = rows[:, None], positions, window
        self._read = slice(int(rows[0]), int(rows[0]) + len(rows)) if dense else rows

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values of shape (B, heads, W, size); return those of the window."""
        if layer_idx not in self._buffers:
            self._buffers[layer_idx] = self._allocate(key_states), self._allocate(value_states)
        keys, values = self._buffers[layer_idx]
        keys[self._write_rows, :, self._positions] = key_states.transpose(1, 2)
        values[self._write_rows, :, self._positions] = value_states.transpose(1, 2)
        return self._window_of(keys), self._window_of(values)

    def _allocate(self, states: torch.Tensor) -> torch.Tensor:
        _, heads, _, size = states.shape
        return states.new_zeros(self.rows, heads, self.capacity + 1, size)

    def _window_of(self, buffer: torch.Tensor) -> torch.Tensor:
        seen = buffer[:, :, : self._window]
        return (
            seen[self._read] if isinstance(self._read, slice) else seen.index_select(0, self._read)
        )

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0: positions are always given to the model, never counted by it."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self._window, 0


def _grown(buffer: torch.Tensor, rows: int, capacity: int, held: int) -> torch.Tensor:
    _, heads, _, size = buffer.shape
    larger = buffer.new_zeros(rows, heads, capacity + 1, size)
    larger[: len(buffer), :, :held] = buffer[:, :, :held]
    return larger
