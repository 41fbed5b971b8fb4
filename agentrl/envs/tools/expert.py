"""An expert of a tool environment, and its episodes as demonstrations.

An expert is a generator function of (task, rng). It yields what it does, calls or a text, and is
sent what the environment showed::

    def expert(task, rng):
        found = yield ToolCall("", "search", {"query": task.payload["name"]})
        yield found.splitlines()[0]          # a text: the answer
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

from agentrl.core.errors import DataError
from agentrl.core.message import Message, ToolCall
from agentrl.core.protocols import Demonstration, Env
from agentrl.core.task import Task

__all__ = ["Expert", "played"]

Said = ToolCall | Sequence[ToolCall] | str | Message
Expert = Callable[[Task, random.Random], Generator[Said, str, None]]


def played(
    make_env: Callable[[], Awaitable[Env]], expert: Expert, task: Task, rng: random.Random
) -> list[Demonstration]:
    """The expert's episode, played in an event loop of its own.

    Raises:
        DataError: it yields what nobody can say, or stops before the episode is over.
    """
    return asyncio.run(_play(make_env, expert, task, rng))


async def _play(
    make_env: Callable[[], Awaitable[Env]], expert: Expert, task: Task, rng: random.Random
) -> list[Demonstration]:
    env = await make_env()
    steps: list[Demonstration] = []
    acting = expert(task, rng)
    try:
        shown = await env.reset()
        said: Said = next(acting)
        while True:
            action = _message(said, task)
            steps.append(Demonstration(shown, action, trainable=True))
            result = await env.step(action)
            if result.terminated or result.truncated:
                return steps
            shown = result.observation
            said = acting.send("\n".join(one.content for one in shown.messages))
    except StopIteration:
        raise DataError(
            f"the expert of env '{task.env}' stopped after {len(steps)} steps of task '{task.id}', "
            "and the episode is not over: let it call the tool that ends it, or yield its answer"
        ) from None
    finally:
        acting.close()
        await env.aclose()


def _message(said: Any, task: Task) -> Message:
    if isinstance(said, Message):
        return said
    if isinstance(said, str):
        return Message("assistant", said)
    calls: Any = [said] if isinstance(said, ToolCall) else said
    if not (
        isinstance(calls, list | tuple)
        and calls
        and all(isinstance(one, ToolCall) for one in calls)
    ):
        raise DataError(
            f"the expert of env '{task.env}' yielded {said!r}; expected a ToolCall, a list of "
            "them, a text or a Message"
        )
    named = [replace(one, id=one.id or f"call_{place}") for place, one in enumerate(calls)]
    return Message("assistant", "", tool_calls=tuple(named))
