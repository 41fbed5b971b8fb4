"""Worker processes for tests; each test ends with none left."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from agentrl.core.errors import AgentRLError
from agentrl.core.protocols import Env
from agentrl.envs.process.factory import ProcessFactory, Workers, in_processes

BROKEN = "agentrl.testing.broken:BrokenFactory"
PATIENCE_S = 30.0

Start = Callable[..., ProcessFactory]


_others: set[int] = set()


@pytest.fixture(autouse=True)
def _not_ours() -> None:
    """What other tests of the session have left running is none of these tests' business."""
    _others.clear()
    _others.update(children())


def children() -> list[int]:
    """Ids of processes that the test has started and that are alive, or dead and not reaped."""
    all_of_them = {one.pid for one in psutil.Process().children(recursive=True)}
    return sorted(all_of_them - _others)


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    """Wait for what another process does."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.01)


def failure(work: Callable[[], Any]) -> AgentRLError:
    """The expected error that ``work`` raises."""
    with pytest.raises(AgentRLError) as caught:
        work()
    return caught.value


async def end(env: Env) -> str:
    """Close an environment; what that raised, in words."""
    try:
        await env.aclose()
    except AgentRLError as error:
        return str(error)
    return ""


@pytest.fixture
def start(caplog: pytest.LogCaptureFixture) -> Iterator[Start]:
    """Starts factories of the broken toy environment, or of another one, and ends them."""
    before = children()
    started = []

    def begin(
        fault: str = "", *, name: str = BROKEN, options: Any = None, **settings: Any
    ) -> ProcessFactory:
        own = {"fault": fault} if name == BROKEN else {}
        limits = {name: settings.pop(name) for name in Workers.__slots__ if name in settings}
        workers = Workers(**{"grace_s": 0.6, "start_timeout_s": 60.0} | limits)
        factory = in_processes(name, own | settings | (options or {}), workers)
        started.append(factory)
        return factory

    yield begin
    for factory in started:
        asyncio.run(factory.aclose())
    started.clear()
    gc.collect()
    wait_until(lambda: children() == before)
    # asyncio logs what went wrong in a task or callback that nobody waits for.
    assert [one.message for one in caplog.records if one.name == "asyncio"] == []
