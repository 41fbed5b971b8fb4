"""Environments that break on purpose, for tests of whatever must survive them.

``FaultyFactory(ToyFactory(), Fault(kind="hang", at="step", step=2))`` is an EnvFactory like the
one inside it, except that the chosen episodes fail as told; a function instead of the fault says
for each attempt what breaks (a plan). It counts what is open, so that a test can show that every
environment was closed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from agentrl.core.errors import ConfigError, EnvError
from agentrl.core.message import Message, ToolSpec
from agentrl.core.protocols import Env, EnvFactory
from agentrl.core.task import Task
from agentrl.core.trajectory import Observation, StepResult

__all__ = [
    "Fault",
    "FaultKind",
    "FaultPlace",
    "FaultyEnv",
    "FaultyFactory",
    "Plan",
    "PlantedBug",
]

FaultKind = Literal[
    "raise",  # EnvError
    "bug",  # an exception outside the error tree
    "hang",  # waits without end; can be cancelled
    "late",  # takes its cancellation for nothing and answers late_s after it
    "slow",  # waits for late_s, then answers
    "block",  # blocks the whole thread for block_s
    "exit",  # calls sys.exit
    "cancel",  # raises CancelledError, though nobody cancelled it
    "nan_reward",
    "infinite_reward",
    "no_reward",  # None: unscored
    "oversized",  # an observation of oversized_characters
    "not_a_result",  # None instead of a StepResult or Observation
]
FaultPlace = Literal["make", "reset", "step", "close"]

_REWARDS: dict[str, float | None] = {
    "nan_reward": float("nan"),
    "infinite_reward": float("inf"),
    "no_reward": None,
}
_ANYWHERE = ("raise", "bug", "hang", "late", "slow", "block", "exit", "cancel")


class PlantedBug(RuntimeError):
    """What the fault ``bug`` raises: an exception no environment declares."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What breaks, where, and for whom.

    Attributes:
        kind: What happens.
        at: Where it happens.
        step: Which step breaks, from 0 (``at="step"`` only).
        attempts: Only the first so many environments made of one (task, seed) break; ``None``:
            all do. ``attempts=1`` lets a retry succeed.
        chooses: Which episodes break, by task and seed; never by the order in which they are made.
        block_s: How long ``block`` holds the thread. late_s: see ``late`` and ``slow``.
        oversized_characters: Length of the ``oversized`` observation.

    Raises:
        ConfigError: ``kind`` cannot happen ``at`` that place.
    """

    kind: FaultKind
    at: FaultPlace = "step"
    step: int = 0
    attempts: int | None = None
    chooses: Callable[[Task, int], bool] = lambda task, seed: True
    block_s: float = 0.5
    late_s: float = 0.05
    oversized_characters: int = 70_839

    def __post_init__(self) -> None:
        places = {"step"} if self.kind in _REWARDS else {"reset", "step"}
        if self.kind not in _ANYWHERE and self.at not in places:
            raise ConfigError(
                f"a fault '{self.kind}' cannot happen at '{self.at}'; it can at: "
                f"{', '.join(sorted(places))}"
            )


Plan: TypeAlias = Callable[[Task, int, int], Fault | None]


class FaultyFactory:
    """Wraps an EnvFactory; ``opened`` and ``closed`` count environments (``closed`` once each).

    Args:
        inner: What it wraps.
        fault: What breaks; or a function of (task, seed, number of the attempt from 0) that says.
    """

    def __init__(self, inner: EnvFactory, fault: Fault | Plan) -> None:
        self._inner = inner
        self._plan: Plan = _plan_of(fault) if isinstance(fault, Fault) else fault
        self._made: Counter[tuple[str, int]] = Counter()
        self.opened = 0
        self.closed = 0

    @property
    def splits(self) -> Sequence[str]:
        return self._inner.splits

    def tasks(self, split: str) -> Sequence[Task]:
        return self._inner.tasks(split)

    async def make(self, task: Task, *, seed: int) -> Env:
        attempt = self._made[task.id, seed]
        self._made[task.id, seed] += 1
        fault = self._plan(task, seed, attempt)
        if fault is not None and fault.at == "make":
            await _break(fault)
        env = await self._inner.make(task, seed=seed)
        self.opened += 1
        return FaultyEnv(env, fault, on_close=self._count_close)

    def _count_close(self) -> None:
        self.closed += 1


def _plan_of(fault: Fault) -> Plan:
    def plan(task: Task, seed: int, attempt: int) -> Fault | None:
        within = fault.attempts is None or attempt < fault.attempts
        return fault if within and fault.chooses(task, seed) else None

    return plan


class FaultyEnv:
    """Wraps an Env; ``fault`` ``None`` changes nothing."""

    def __init__(self, inner: Env, fault: Fault | None, *, on_close: Callable[[], None]) -> None:
        self._inner = inner
        self._fault = fault
        self._on_close = on_close
        self._steps = 0
        self._closed = False

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return self._inner.tools

    async def reset(self) -> Observation:
        fault = self._due("reset")
        if fault is not None:
            await _break(fault)
        observation = await self._inner.reset()
        return observation if fault is None else _spoilt_observation(fault, observation)

    async def step(self, action: Message) -> StepResult:
        fault = self._due("step")
        self._steps += 1
        if fault is not None:
            await _break(fault)
        result = await self._inner.step(action)
        return result if fault is None else _spoilt_result(fault, result)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._on_close()
        await self._inner.aclose()
        fault = self._due("close")
        if fault is not None:
            await _break(fault)

    def _due(self, place: FaultPlace) -> Fault | None:
        fault = self._fault
        if fault is None or fault.at != place or (place == "step" and fault.step != self._steps):
            return None
        return fault


async def _break(fault: Fault) -> None:
    """Raise, wait or block; kinds that spoil an answer do nothing here."""
    if fault.kind == "raise":
        raise EnvError(f"planted fault at {fault.at}")
    if fault.kind == "bug":
        raise PlantedBug(f"planted bug at {fault.at}")
    if fault.kind == "hang":
        await asyncio.Event().wait()
    if fault.kind == "exit":
        sys.exit(3)
    if fault.kind == "cancel":
        raise asyncio.CancelledError
    if fault.kind == "slow":
        await asyncio.sleep(fault.late_s)
    if fault.kind == "late":
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(fault.late_s)
    if fault.kind == "block":
        time.sleep(fault.block_s)  # noqa: ASYNC251 - blocking the loop is the fault


def _spoilt_observation(fault: Fault, observation: Observation) -> Any:
    if fault.kind == "not_a_result":
        return None
    if fault.kind == "oversized":
        message = Message("user", "x" * fault.oversized_characters)
        return replace(observation, messages=(message,))
    return observation


def _spoilt_result(fault: Fault, result: StepResult) -> Any:
    if fault.kind == "not_a_result":
        return None
    if fault.kind in _REWARDS:
        return replace(result, reward=_REWARDS[fault.kind])
    return replace(result, observation=_spoilt_observation(fault, result.observation))
