"""Scripted environments for tests of loops: they play a list, and count what is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agentrl.core.message import Message, ToolSpec
from agentrl.core.task import Task, content_hash
from agentrl.core.trajectory import Observation, StepResult

__all__ = ["ScriptedEnv", "ScriptedFactory", "say"]


def say(*texts: str, anchor: str | None = None) -> Observation:
    """An observation of user messages."""
    return Observation(tuple(Message("user", text) for text in texts), anchor=anchor)


@dataclass(slots=True)
class ScriptedEnv:
    """Answers with ``results`` in order, whatever the action; remembers what it was sent.

    A result may be an exception (raised), or an awaitable maker (awaited: to hang or wait).
    """

    first: Observation
    results: Sequence[object]
    actions: list[str] = field(default_factory=list)
    resets: int = 0
    closes: int = 0

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return ()

    async def reset(self) -> Observation:
        self.resets += 1
        return self.first

    async def step(self, action: Message) -> StepResult:
        result = self.results[len(self.actions)]
        self.actions.append(action.content)
        if callable(result):
            result = await result()
        if isinstance(result, BaseException):
            raise result
        assert isinstance(result, StepResult)
        return result

    async def aclose(self) -> None:
        self.closes += 1


@dataclass(slots=True)
class ScriptedFactory:
    """``count`` tasks in ``train``; ``script`` makes the environment of (task, attempt)."""

    script: Callable[[Task, int], ScriptedEnv]
    count: int = 1
    made: list[ScriptedEnv] = field(default_factory=list)
    seeds: list[tuple[str, int]] = field(default_factory=list)

    @property
    def splits(self) -> Sequence[str]:
        return ("train",)

    def tasks(self, split: str) -> Sequence[Task]:
        payloads = [{"number": number} for number in range(self.count)]
        return [Task(content_hash(one), "scripted", split, one) for one in payloads]

    async def make(self, task: Task, *, seed: int) -> ScriptedEnv:
        attempt = sum(1 for name, _ in self.seeds if name == task.id)
        self.seeds.append((task.id, seed))
        env = self.script(task, attempt)
        self.made.append(env)
        return env
