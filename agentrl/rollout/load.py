"""Where the time of a rollout went: its counters and the engine's over a span of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentrl.engines.work import EngineWork
from agentrl.rollout.stats import RolloutCounts, RolloutStats

__all__ = ["Load", "Mark", "Meter", "shares"]

TIMINGS = ("sample_s", "env_s", "tool_s", "wait_s")


@dataclass(frozen=True, slots=True)
class Load:
    """What was played in ``play_s`` seconds, and how busy the engine was with it.

    Attributes:
        engine: ``None`` if the engine keeps no counters.
    """

    counts: RolloutCounts
    play_s: float
    engine: EngineWork | None = None

    @property
    def tokens_per_s(self) -> float:
        """Sampled tokens a second; those of the engine's own counter where it has one."""
        known = self.counts.sampled_tokens if self.engine is None else self.engine.sampled_tokens
        return known / self.play_s if self.play_s > 0 else 0.0

    @property
    def engine_utilisation(self) -> float | None:
        """Share of ``play_s`` in which a forward pass ran, in [0, 1]; ``None``: unknown."""
        if self.engine is None or self.play_s <= 0:
            return None
        # A pass is counted when it ends, so a short span may get a little more than it has.
        return min(self.engine.busy_s / self.play_s, 1.0)

    def to_data(self) -> dict[str, Any]:
        """Plain data for the store and for trackers; what is unknown is ``None``."""
        timings = {name: self.counts.timings.get(name, 0.0) for name in TIMINGS}
        return {
            **self.counts.to_data(),
            **timings,
            "play_s": self.play_s,
            "tokens_per_s": self.tokens_per_s,
            "engine_utilisation": self.engine_utilisation,
            "engine_mean_batch": None if self.engine is None else self.engine.mean_batch,
        }


def shares(timings: Mapping[str, float]) -> dict[str, float]:
    """Where the steps' time went: ``sampling``, ``environment``, ``tools``, ``waiting``; sum 1.

    Args:
        timings: Sums of ``Timings`` by field. ``env_s`` holds ``tool_s``; here they are apart.

    Returns:
        Empty if no time was spent.
    """
    tools = timings.get("tool_s", 0.0)
    parts = {
        "sampling": timings.get("sample_s", 0.0),
        "environment": max(timings.get("env_s", 0.0) - tools, 0.0),
        "tools": tools,
        "waiting": timings.get("wait_s", 0.0),
    }
    total = sum(parts.values())
    return {name: one / total for name, one in parts.items()} if total > 0 else {}


class Mark(NamedTuple):
    """Readings at one moment."""

    counts: RolloutCounts
    at_s: float
    engine: EngineWork | None


@dataclass(frozen=True, slots=True)
class Meter:
    """Reads a runner's counters and its engine's together; from any thread."""

    stats: RolloutStats
    engine: Any
    clock: Callable[[], float] = time.perf_counter

    def mark(self) -> Mark:
        return Mark(self.stats.counts(), self.clock(), EngineWork.of(self.engine))

    def since(self, mark: Mark) -> Load:
        """What has happened since ``mark``."""
        now = self.mark()
        engine = None
        if now.engine is not None and mark.engine is not None:
            engine = now.engine.since(mark.engine)
        return Load(now.counts.since(mark.counts), now.at_s - mark.at_s, engine)
