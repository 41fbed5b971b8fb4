"""A small game whose every outcome follows from (task, seed, actions), broken as its task says.

It keeps a ledger of all it answers. Its factory serves in the trainer's process and, as
``agentrl.testing.chaos_env:ChaosFactory``, in worker processes alike.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl.core.errors import SandboxDiedError
from agentrl.core.message import Message, ToolSpec
from agentrl.core.protocols import Env, EnvFactory
from agentrl.core.task import Task, content_hash, derive_seed
from agentrl.core.trajectory import Observation, StepResult
from agentrl.testing.chaos_ledger import Answered, Ledger, Playing
from agentrl.testing.faults import Fault, FaultyFactory

__all__ = ["INLINE", "LONGEST", "WORKERS", "ChaosEnv", "ChaosFactory", "chaos_tasks"]

INLINE, WORKERS = "chaos", "chaos-workers"  # names of the environment, by where it is played
LONGEST = 6  # steps of the longest game; a budget of one less cuts it short
OWN_KINDS = ("kill", "tool")


def chaos_tasks(count: int, workers_every: int = 4) -> list[Task]:
    """``count`` tasks; each ``workers_every``-th is for worker processes (0: none is)."""
    made = []
    for number in range(count):
        away = workers_every and number % workers_every == workers_every - 1
        payload = {"number": number}
        made.append(Task(content_hash(payload), WORKERS if away else INLINE, "train", payload))
    return made


@dataclass(slots=True)
class ChaosEnv:
    """A game of 1 to ``LONGEST`` steps; rewards and the end depend on what was done.

    ``number`` is on record in the metric ``playing`` of every answer. The fault ``kill`` ends the
    process, ``tool`` is a sandbox that dies under a tool; the others are ``FaultyEnv``'s.
    """

    task: Task
    seed: int
    number: int
    fault: Mapping[str, Any] | None
    ledger: Ledger
    said: list[str] = field(default_factory=list)

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return ()

    async def reset(self) -> Observation:
        return self._show()

    async def step(self, action: Message) -> StepResult:
        fault = self.fault
        if fault is not None and fault["step"] == len(self.said):
            if fault["kind"] == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if fault["kind"] == "tool":
                raise SandboxDiedError("planted fault: the sandbox of a tool died")
        self.said.append(action.content)
        length = 1 + derive_seed(self.seed, self.task.id, "length") % LONGEST
        over = len(self.said) >= length
        drawn = derive_seed(self.seed, *self.said)
        reward = round(drawn % 1000 / 1000, 3)
        self.ledger.answer(self.number, Answered(action.content, reward, over))
        return StepResult(
            self._show(),
            reward,
            terminated=over,
            success=drawn % 2 == 0 if over else None,
            metrics={"playing": float(self.number)},
        )

    async def aclose(self) -> None:
        """Nothing is open."""

    def _show(self) -> Observation:
        text = f"{derive_seed(self.seed, 'shown', *self.said) % 10**6:06}"
        return Observation((Message("user", text),), anchor=text)


class ChaosFactory:
    """Makes the game of tasks whose payload says which playing it is and what breaks.

    Args:
        ledger: Directory of the ledger.
    """

    splits: Sequence[str] = ("train",)

    def __init__(self, ledger: str) -> None:
        self._ledger = Ledger(ledger)
        self._faulty = FaultyFactory(_Sound(self._ledger), lambda task, seed, _: _planned(task))

    @property
    def open(self) -> int:
        """Environments that were made and not closed."""
        return self._faulty.opened - self._faulty.closed

    def tasks(self, split: str) -> Sequence[Task]:
        """None: ``chaos_tasks`` makes them."""
        return ()

    async def make(self, task: Task, *, seed: int) -> Env:
        return await self._faulty.make(task, seed=seed)

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()


@dataclass(frozen=True, slots=True)
class _Sound(EnvFactory):
    ledger: Ledger
    splits: Sequence[str] = ()

    def tasks(self, split: str) -> Sequence[Task]:
        return ()

    async def make(self, task: Task, *, seed: int) -> ChaosEnv:
        fault, number = task.payload.get("fault"), task.payload["playing"]
        self.ledger.begin(Playing(number, task.id, seed, _breaks_at(fault)))
        return ChaosEnv(task, seed, number, fault, self.ledger)


def _planned(task: Task) -> Fault | None:
    fault = task.payload.get("fault")
    return None if fault is None or fault["kind"] in OWN_KINDS else Fault(**fault)


def _breaks_at(fault: Mapping[str, Any] | None) -> int | None:
    """The first step that cannot be on record; closing and slowness spoil none."""
    if fault is None or fault["at"] == "close" or fault["kind"] in ("slow", "block"):
        return None
    return fault["step"] if fault["at"] == "step" else 0
