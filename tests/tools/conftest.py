"""How tests of tools call them: a list of tools, a message of calls, the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from agentrl.core.message import ToolCall
from agentrl.core.task import Task
from agentrl.tools import Dispatched, DispatchLimits, OpenTools, Toolbox
from agentrl.tools.blocking import LoopWatch

T = TypeVar("T")
TASK = Task("task", "tests", "train", {"number": 3})
NEVER = LoopWatch(long_s=1e9, stuck_s=1e9)
"""Reports nothing: on a busy machine any stretch may take long."""


def called(number: int, name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(f"id-{number}", name, arguments)


def answers(
    tools: Sequence[Any],
    *calls: ToolCall,
    limits: DispatchLimits | None = None,
    watch: LoopWatch = NEVER,
) -> Dispatched:
    """What ``tools`` answer to one message in an episode of its own."""

    async def use(opened: OpenTools) -> Dispatched:
        return await opened.answer(calls)

    return using(Toolbox(tools, limits=limits, watch=watch), use)


def using(toolbox: Toolbox, work: Callable[[OpenTools], Awaitable[T]]) -> T:
    """Run ``work`` with the tools of one episode, under a deadline."""

    async def main() -> T:
        async with asyncio.timeout(60), toolbox.open(TASK, seed=5) as opened:
            return await work(opened)

    return asyncio.run(main())


def texts(dispatched: Dispatched) -> list[str]:
    return [one.content for one in dispatched.messages]
