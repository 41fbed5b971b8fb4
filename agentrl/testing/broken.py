"""An environment that breaks on purpose and can be made of plain options, so in any process.

``in_processes("agentrl.testing.broken:BrokenFactory", {"fault": "exit", "at": "step"})`` is the toy
environment, except that its process ends in mid-step. Faults that need no process of their own are
in ``agentrl.testing.faults``; these end, stop or block the whole process, or answer what cannot
leave it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agentrl.core.errors import ConfigError, EnvError
from agentrl.core.message import Message, ToolSpec
from agentrl.core.task import Task
from agentrl.core.trajectory import Observation, StepResult
from agentrl.envs.toy import CorridorEnv, ToyFactory

__all__ = ["ANSWERS", "FAULTS", "PLACES", "BrokenEnv", "BrokenFactory"]

PLACES = ("make", "reset", "step", "close")
NOISE = b'\x00\x00\x00\x02{}{"id": 0, "value": null}\xff\n'


async def _hang() -> None:
    await asyncio.Event().wait()


async def _ignore_cancelling() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


async def _cancel_itself() -> None:
    raise asyncio.CancelledError


def _raise() -> None:
    raise EnvError("planted fault")


def _bug() -> None:
    raise KeyError("planted bug")


def _print() -> None:
    print("printed by the environment")
    sys.stderr.write("written to stderr\n")
    for descriptor in (1, 2):
        os.write(descriptor, NOISE)


def _print_much() -> None:
    for _ in range(200):
        print("x" * 10_000)


def _signal(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


#: What is done instead of going on.
FAULTS: dict[str, Callable[[], Any]] = {
    "raise": _raise,
    "bug": _bug,
    "hang": _hang,
    "ignore_cancelling": _ignore_cancelling,
    "cancel_itself": _cancel_itself,
    "block": lambda: time.sleep(10_000),
    "block_a_while": lambda: time.sleep(1.5),
    "exit": lambda: os._exit(9),
    "system_exit": lambda: sys.exit("planted exit"),
    "kill": _signal(signal.SIGKILL),
    "stop": _signal(signal.SIGSTOP),
    "print": _print,
    "print_much": _print_much,
}


class Array:
    """Looks like an array of some library."""

    def tolist(self) -> list[int]:
        return [1, 2]


class OwnResult(StepResult):
    """A StepResult of somebody's own."""


def _with(**wrong: Any) -> Callable[[StepResult], Any]:
    return lambda result: replace(result, **wrong)


def _anchored(anchor: Any) -> Callable[[StepResult], Any]:
    return lambda result: replace(result, observation=replace(result.observation, anchor=anchor))


def _holds_itself() -> list[Any]:
    anchor: list[Any] = []
    anchor.append(anchor)
    return anchor


#: What a step answers instead of the right result.
ANSWERS: dict[str, Callable[[StepResult], Any]] = {
    "nothing": lambda result: None,
    "text": lambda result: "a result",
    "observation": lambda result: result.observation,
    "own_class": lambda result: OwnResult(result.observation, 0.0, terminated=False),
    "nan": _with(reward=float("nan")),
    "no_reward": _with(reward=None),
    "text_reward": _with(reward="1"),
    "number_terminated": _with(terminated=0),
    "text_success": _with(success="yes"),
    "text_metrics": _with(metrics={"a": "b"}),
    "no_observation": _with(observation=None),
    "bare_message": _with(observation=Observation("hello")),  # type: ignore[arg-type]
    "number_content": _with(observation=Observation((Message("user", 3),))),  # type: ignore[arg-type]
    "ten_megabytes": _with(
        observation=Observation((Message("user", "\u00e4\U0001f511\ud800" + "x" * 10**7),))
    ),
    "array": _anchored({"grid": [Array()]}),
    "set": _anchored({1, 2}),
    "object": _anchored(object()),
    "bytes": _anchored(b"x"),
    "holds_itself": _anchored(_holds_itself()),
    "exact": _anchored(
        {
            "tuple": (1, (2.5, [None, True], ())),
            "$tuple": [0.1 + 0.2, float("inf"), -0.0, 2**70],
            "pairs": {1: "one", (2, 3): "two", None: {}},
            "text": "\ud800\x00\u202e \U0001f511",
        }
    ),
}


class BrokenEnv(CorridorEnv):
    """A corridor that breaks at one place."""

    tools: Sequence[ToolSpec] = ()

    def __init__(self, inner: CorridorEnv, fault: Callable[[str], Any], ledger: str | None) -> None:
        super().__init__(inner._start, max_steps=inner._max_steps)
        self._fault = fault
        self._ledger = ledger
        self._closed = False
        self._note("open")

    async def reset(self) -> Observation:
        await self._fault("reset")
        return await super().reset()

    async def step(self, action: Message) -> StepResult:
        spoil = await self._fault("step")
        result = await super().step(action)
        return result if spoil is None else spoil(result)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._note("close")
        await super().aclose()
        await self._fault("close")

    async def replay(self, actions: Sequence[Message]) -> Observation:
        """Play actions in one go; what comes last is returned."""
        observation = await self.reset()
        for action in actions:
            observation = (await self.step(action)).observation
        return observation

    def _note(self, word: str) -> None:
        if self._ledger is not None:
            with open(self._ledger, "a", encoding="utf-8") as file:
                file.write(f"{word}\n")


class BrokenFactory(ToyFactory):
    """The toy environment with a fault.

    Args:
        fault: A name of ``FAULTS`` or ``ANSWERS``; empty: none.
        at: Where, one of ``PLACES``; an answer is always spoilt at ``step``.
        task_id: Only in episodes of this task; empty: in all.
        once: A path. Only the first episode to get there breaks, and leaves a file there.
        ledger: A path. Every environment writes a line when it is made and when it is closed.
        max_rooms, max_steps: As for the toy environment.

    Raises:
        ConfigError: no such fault or place.
    """

    def __init__(
        self,
        *,
        fault: str = "",
        at: str = "step",
        task_id: str = "",
        once: str = "",
        ledger: str | None = None,
        max_rooms: int = 3,
        max_steps: int = 30,
    ) -> None:
        super().__init__(max_rooms=max_rooms, max_steps=max_steps)
        if at not in PLACES or fault not in ("", *FAULTS, *ANSWERS):
            raise ConfigError(f"no fault '{fault}' at '{at}'; places: {', '.join(PLACES)}")
        self._fault, self._at, self._task_id, self._once = fault, at, task_id, once
        self._ledger = ledger

    async def make(self, task: Task, *, seed: int) -> BrokenEnv:
        async def fault(place: str) -> Any:
            return await self._break(place, task)

        await fault("make")
        return BrokenEnv(await super().make(task, seed=seed), fault, self._ledger)

    async def _break(self, place: str, task: Task) -> Callable[[StepResult], Any] | None:
        if place != self._at or self._task_id not in ("", task.id):
            return None
        if self._once:
            try:
                os.close(os.open(self._once, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return None
        if self._fault in ANSWERS:
            return ANSWERS[self._fault]
        if self._fault:
            outcome = FAULTS[self._fault]()
            if outcome is not None:
                await outcome
        return None
