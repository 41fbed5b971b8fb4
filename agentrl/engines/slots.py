"""Who holds which row of a key/value cache: one slot per episode, the idlest one evicted.

Bookkeeping only, without tensors: a slot says which tokens' keys and values lie in its row.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator, Set
from dataclasses import dataclass, field

__all__ = ["Slot", "SlotTable"]


@dataclass(slots=True, eq=False)
class Slot:
    """A row of the cache on loan to an episode.

    Attributes:
        row: Number of the row.
        episode_id: Whose it is.
        held: Tokens whose keys and values are in the row, from position 0.
        canonical: How many of them, from the front, were computed in forward passes whose shape
            any run would have had (fixed widths); used in deterministic mode only.
        released: Give the row back as soon as it is idle.
        old: Some of it was made by earlier weights: of use to its own episode alone.
    """

    row: int
    episode_id: str
    held: list[int] = field(default_factory=list)
    canonical: int = 0
    released: bool = False
    old: bool = False

    def trim(self, length: int) -> None:
        """Keep the first ``length`` tokens; what lies behind them in the row is overwritten."""
        del self.held[length:]
        self.canonical = min(self.canonical, length)


class SlotTable:
    """``count`` rows. A slot is busy (a request runs), idle (kept for the next turn) or free."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._free = list(range(count))
        self._idle: OrderedDict[str, Slot] = OrderedDict()
        self._busy: dict[str, Slot] = {}
        self.evictions = 0

    @property
    def available(self) -> bool:
        """Whether any episode could get a slot now."""
        return bool(self._free or self._idle)

    def acquire(self, episode_id: str) -> Slot | None:
        """The episode's own slot, a free one, or the least recently used idle one.

        ``None`` if the episode already has a running request, or every slot is busy.
        """
        if episode_id in self._busy:
            return None
        slot = self._idle.pop(episode_id, None)
        if slot is None:
            if self._free:
                row = heapq.heappop(self._free)
            elif self._idle:
                row = self._idle.popitem(last=False)[1].row
                self.evictions += 1
            else:
                return None
            slot = Slot(row, episode_id)
        self._busy[episode_id] = slot
        return slot

    def idle_slot(self, episode_id: str) -> Slot | None:
        """The slot kept for an episode that has no running request."""
        return self._idle.get(episode_id)

    def rest(self, slot: Slot) -> None:
        """The request of ``slot`` is over: keep the row for the next turn, unless released."""
        del self._busy[slot.episode_id]
        if slot.released:
            heapq.heappush(self._free, slot.row)
        else:
            self._idle[slot.episode_id] = slot

    def release(self, episode_id: str) -> None:
        """The episode is over: free its row, at once or when its request ends."""
        slot = self._idle.pop(episode_id, None)
        if slot is not None:
            heapq.heappush(self._free, slot.row)
        elif episode_id in self._busy:
            self._busy[episode_id].released = True

    def forget(self) -> None:
        """No row holds anything any more (new weights). Running requests keep their rows."""
        for slot in self._idle.values():
            heapq.heappush(self._free, slot.row)
        self._idle.clear()
        for slot in self._busy.values():
            slot.trim(0)
            slot.old = False

    def age(self, *, void: Set[int]) -> None:
        """Idle rows are free; running requests keep what they hold, as ``old``.

        Args:
            void: Rows that hold nothing yet of what their slots say.
        """
        for slot in self._idle.values():
            heapq.heappush(self._free, slot.row)
        self._idle.clear()
        for slot in self._busy.values():
            if slot.row in void:
                slot.trim(0)
            slot.old = bool(slot.held)

    def clear(self) -> None:
        """Every row is free."""
        self._free = list(range(self._count))
        self._idle.clear()
        self._busy.clear()

    def __iter__(self) -> Iterator[Slot]:
        yield from self._busy.values()
        yield from self._idle.values()
