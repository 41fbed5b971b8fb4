"""What breaks in a chaos run: planned from seeds alone, never from the order of events."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from agentrl.core.errors import EngineError
from agentrl.core.protocols import Env, EnvFactory
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import Sample, Sampling
from agentrl.testing.chaos_env import LONGEST, WORKERS

__all__ = ["ChaosEngine", "ChaosPlan", "Dispatcher", "full_disk"]

# (kind, places), each as likely as the next.
_ANYWHERE: Sequence[tuple[str, Sequence[str]]] = (
    ("raise", ("make", "reset", "step")),
    ("bug", ("make", "reset", "step", "close")),
    ("hang", ("reset", "step")),
    ("late", ("reset", "step")),
    ("slow", ("make", "reset", "step", "close")),
    ("exit", ("reset", "step")),
    ("nan_reward", ("step",)),
    ("infinite_reward", ("step",)),
    ("not_a_result", ("reset", "step")),
    ("tool", ("step",)),
)
_INLINE = (*_ANYWHERE, ("cancel", ("reset", "step")), ("block", ("step",)))
_KILL = ("kill", ("step",))
_AWAY = (*_ANYWHERE, _KILL, _KILL, _KILL)
WORDS = ("left", "right", "take", "open", "", "<tool_call>{]", "\ud7ff\u200b\x00", "NaN")


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    """Which attempts break, and how.

    Attributes:
        seed: Of the plan. ``share`` of first attempts break, and half of that of second ones.
        doomed: Share of tasks whose every attempt breaks.
        engine: Share of the engine's calls that go wrong.
    """

    seed: int = 0
    share: float = 1 / 3
    doomed: float = 0.02
    engine: float = 0.03

    def is_doomed(self, task: Task) -> bool:
        """No attempt at this task can finish."""
        return _draw(self.seed, "doomed", task.id) < self.doomed

    def fault(self, task: Task, seed: int, attempt: int) -> dict[str, Any] | None:
        """What breaks in an attempt, as keyword arguments of ``Fault``; ``None``: nothing."""
        if self.is_doomed(task):
            return {"kind": "raise", "at": "reset", "step": 0}
        rng = random.Random(derive_seed(self.seed, task.id, seed, attempt))
        if attempt > 1 or rng.random() >= self.share / (1 + attempt):
            return None
        kind, places = rng.choice(_AWAY if task.env == WORKERS else _INLINE)
        late_s = rng.choice((0.02, 0.3))  # the second outlasts the patience with a cancelled call
        fault = {"kind": kind, "at": rng.choice(places), "step": rng.randrange(LONGEST)}
        return fault | {"late_s": late_s, "block_s": 0.02}


def _draw(*parts: int | str) -> float:
    return derive_seed(*parts) / 2**63


@dataclass(slots=True)
class Dispatcher:
    """An EnvFactory that numbers what it makes, adds the plan, and sends it where it is played."""

    inline: EnvFactory
    away: EnvFactory | None
    plan: ChaosPlan | None
    splits: Sequence[str] = ("train",)
    playings: int = 0
    attempts: dict[tuple[str, int], int] = field(default_factory=dict)

    def tasks(self, split: str) -> Sequence[Task]:
        return ()

    async def make(self, task: Task, *, seed: int) -> Env:
        attempt = self.attempts.get((task.id, seed), 0)
        self.attempts[task.id, seed] = attempt + 1
        self.playings += 1
        payload: dict[str, Any] = {**task.payload, "playing": self.playings}
        if self.plan is not None:
            payload["fault"] = self.plan.fault(task, seed, attempt)
        where = self.away if task.env == WORKERS and self.away is not None else self.inline
        return await where.make(replace(task, payload=payload), seed=seed)


class ChaosEngine:
    """Says one of ``WORDS`` by seed; fails, hangs, dawdles and restarts as planned.

    A restart fails every call in flight, and every call for ``down_s`` after it.

    Attributes:
        open: Episodes that were sampled for and not released.
        restarts: So many.
    """

    def __init__(self, plan: ChaosPlan | None, *, down_s: float = 0.05) -> None:
        self._plan = plan
        self._down_s = down_s
        self._up_at = 0.0
        self.open: set[str] = set()
        self.restarts = 0

    async def sample(
        self,
        prompt_ids: Sequence[int],
        *,
        sampling: Sampling,
        stop_token_ids: Sequence[int],
        seed: int,
        episode_id: str,
    ) -> Sample:
        """Answer by ``seed`` alone, or break."""
        self.open.add(episode_id)
        loop, restarts = asyncio.get_running_loop(), self.restarts
        if loop.time() < self._up_at:
            raise EngineError("planted fault: the engine is down")
        await asyncio.sleep(0)
        if self._plan is not None:
            await self._break(_draw(self._plan.seed, "engine", episode_id, seed))
        if self.restarts != restarts:
            raise EngineError("planted fault: the engine was restarted under this call")
        text = WORDS[seed % len(WORDS)]
        ids = (*map(ord, text), *stop_token_ids[:1])
        return Sample(ids, (-0.5,) * len(ids), ((0, 0),), "stop")

    def release(self, episode_id: str) -> None:
        self.open.discard(episode_id)

    async def aclose(self) -> None:
        """Nothing is open."""

    async def _break(self, drawn: float) -> None:
        assert self._plan is not None
        part = drawn / self._plan.engine
        if part < 0.3:
            raise EngineError("planted fault: the engine failed")
        if part < 0.4:
            await asyncio.Event().wait()
        if part < 0.5:
            self.restarts += 1
            self._up_at = asyncio.get_running_loop().time() + self._down_s
            raise EngineError("planted fault: the engine is restarting")
        if part < 1:
            await asyncio.sleep(0.03)


@contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """Let no file of this process grow beyond ``limit`` bytes: what a full disk does to a store.

    Worker processes that are running keep their own limit.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
