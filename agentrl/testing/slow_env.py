"""Any environment with a slow machine under it: each step waits as long as a seeded draw says.

For measuring what waiting costs and whom it holds up. What the environment answers is untouched.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.core.errors import ConfigError
from agentrl.core.message import Message, ToolSpec
from agentrl.core.protocols import Demonstration, Env, EnvFactory
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import Observation, StepResult
from agentrl.registry import make

__all__ = ["SlowEnv", "SlowFactory", "latency_s"]


def latency_s(rng: random.Random, *, shortest_s: float, longest_s: float, tail: float) -> float:
    """Seconds of one step: Pareto from ``shortest_s`` on, cut at ``longest_s``.

    ::

        P(latency > t) = (shortest_s / t) ** tail    for shortest_s <= t < longest_s

    Args:
        rng: Source of randomness.
        shortest_s, longest_s: Bounds.
        tail: The smaller, the heavier the tail; below 1 the mean is that of its longest draws.
    """
    return min(shortest_s * rng.paretovariate(tail), longest_s)


@dataclass(slots=True)
class SlowEnv:
    """``env``, each of whose steps takes a while longer."""

    env: Env
    rng: random.Random
    shortest_s: float
    longest_s: float
    tail: float

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return self.env.tools

    async def reset(self) -> Observation:
        return await self.env.reset()

    async def step(self, action: Message) -> StepResult:
        seconds = latency_s(
            self.rng, shortest_s=self.shortest_s, longest_s=self.longest_s, tail=self.tail
        )
        await asyncio.sleep(seconds)
        return await self.env.step(action)

    async def aclose(self) -> None:
        await self.env.aclose()


class SlowFactory:
    """The environment ``name`` with its ``options``, slowed down.

    As ``env: {name: 'agentrl.testing.slow_env:SlowFactory', options: {name: toy}}`` in a run file.

    Args:
        name: The environment, registered or ``module:attr``.
        options: Its keyword arguments.
        shortest_s, longest_s, tail: Of ``latency_s``.
        splits: Only in these is it slow; ``None``: in all.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any] | None = None,
        *,
        shortest_s: float = 0.05,
        longest_s: float = 0.5,
        tail: float = 1.2,
        splits: Sequence[str] | None = None,
    ) -> None:
        if not 0 <= shortest_s <= longest_s or tail <= 0:
            raise ConfigError(
                f"latencies need 0 <= shortest_s <= longest_s and tail > 0, got {shortest_s}, "
                f"{longest_s} and {tail}"
            )
        self.factory: EnvFactory = make("env", name, options)
        self._latency = shortest_s, longest_s, tail
        self._slow = splits

    @property
    def splits(self) -> Sequence[str]:
        return self.factory.splits

    def tasks(self, split: str) -> Sequence[Task]:
        return self.factory.tasks(split)

    async def make(self, task: Task, *, seed: int) -> Env:
        env = await self.factory.make(task, seed=seed)
        if self._slow is not None and task.split not in self._slow:
            return env
        return SlowEnv(env, random.Random(derive_seed(seed, "latency")), *self._latency)

    def demonstrate(self, task: Task, *, seed: int, noise: float) -> Iterator[Demonstration]:
        """As the environment's own expert; it waits for nothing."""
        demonstrated: Any = self.factory
        yield from demonstrated.demonstrate(task, seed=seed, noise=noise)
