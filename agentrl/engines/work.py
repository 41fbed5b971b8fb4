"""How much an engine has worked, for whoever looks on: one reading of counters of any engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

__all__ = ["EngineWork"]


@dataclass(frozen=True, slots=True)
class EngineWork:
    """What an engine has done since it was made, or ``since`` an earlier reading.

    Attributes:
        busy_s: Seconds in forward passes.
        forwards: Forward passes.
        rows: Requests in them, summed.
        sampled_tokens: Tokens drawn, also for requests that were given up.
    """

    busy_s: float
    forwards: int
    rows: float
    sampled_tokens: int

    @classmethod
    def of(cls, engine: Any) -> Self | None:
        """The engine's counters now; ``None`` if it has none (its ``stats`` are optional).

        ``engine.stats`` needs ``busy_s``, ``forwards``, ``mean_batch`` and ``sampled_tokens``.
        """
        stats: Any = getattr(engine, "stats", None)
        names = ("busy_s", "forwards", "mean_batch", "sampled_tokens")
        if stats is None or not all(hasattr(stats, name) for name in names):
            return None
        forwards = int(stats.forwards)
        rows = float(stats.mean_batch) * forwards
        return cls(float(stats.busy_s), forwards, rows, int(stats.sampled_tokens))

    @property
    def mean_batch(self) -> float:
        """Requests in a forward pass, on average; 0 without any pass."""
        return self.rows / self.forwards if self.forwards else 0.0

    def since(self, earlier: Self) -> Self:
        """What was done after ``earlier``."""
        return type(self)(
            self.busy_s - earlier.busy_s,
            self.forwards - earlier.forwards,
            self.rows - earlier.rows,
            self.sampled_tokens - earlier.sampled_tokens,
        )
