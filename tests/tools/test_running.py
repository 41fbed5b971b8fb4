"""Deadlines, threads, slots, and the tool that blocks the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from agentrl.core.errors import DeadlineError, EnvError
from agentrl.tools import DispatchLimits, OpenTools, Toolbox, tool
from agentrl.tools.blocking import LoopWatch
from agentrl.tools.running import ABANDONED
from tests.tools.conftest import NEVER, TASK, answers, called, texts, using


def endless_async(swallow: bool) -> Any:
    async def endless() -> str:
        """Never answer."""
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            if not swallow:
                raise
            await asyncio.sleep(3600)  # until the event loop of the test ends
        return ""

    return endless


@pytest.fixture
def hung() -> Any:
    """A plain function that does not return before the test is over."""
    release = threading.Event()

    def endless() -> str:
        """Never answer."""
        release.wait(60)
        return ""

    yield endless
    release.set()


@pytest.mark.parametrize("swallow", [False, True])
def test_a_tool_that_never_answers_is_an_infra_failure_by_name(swallow: bool) -> None:
    limits = DispatchLimits(deadline_s=0.05)
    with pytest.raises(DeadlineError, match=r"the tool 'endless' gave no answer within 0\.05 s"):
        answers([endless_async(swallow)], called(1, "endless"), limits=limits)


def test_a_thread_that_never_returns_is_one_too(hung: Any) -> None:
    limits = DispatchLimits(deadline_s=0.05)
    with pytest.raises(DeadlineError, match="the tool 'endless' gave no answer"):
        answers([hung], called(1, "endless"), limits=limits)


def test_a_deadline_may_be_the_models_to_mend() -> None:
    source = tool(deadline_s=0.05, tell_late=True)(endless_async(False))
    got = answers([source], called(1, "endless"))
    assert texts(got) == ["error: the tool 'endless' gave no answer within 0.05 s"]
    assert got.metrics["tool_late"] == 1
    assert got.well_formed


def test_its_own_deadline_comes_before_the_environments() -> None:
    @tool(deadline_s=60)
    async def slow() -> str:
        """Take a while."""
        await asyncio.sleep(0.1)
        return "done"

    assert texts(answers([slow], called(1, "slow"), limits=DispatchLimits(deadline_s=0.01))) == [
        "done"
    ]


def test_threads_that_never_return_are_bounded(hung: Any) -> None:
    hung.deadline_s, hung.tell_late, hung.read_only = 0.01, True, True
    limits = DispatchLimits(calls=ABANDONED)

    async def use(tools: OpenTools) -> None:
        first = await tools.answer([called(k, "endless") for k in range(ABANDONED)])
        assert {one.problem for one in first.records} == {"late"}
        with pytest.raises(EnvError, match=f"{ABANDONED} calls of it have not returned"):
            await tools.answer([called(0, "endless")])

    using(Toolbox([hung], limits=limits, watch=NEVER), use)


def test_plain_functions_run_in_threads_and_quick_ones_in_the_loop() -> None:
    def where() -> str:
        """Say where."""
        return threading.current_thread().name

    async def awaited() -> str:
        """Say where."""
        return threading.current_thread().name

    sources = [where, tool(quick=True, name="quick")(lambda: threading.current_thread().name)]
    sources[1].__doc__ = "Say where."
    got = texts(
        answers([*sources, awaited], *(called(1, name) for name in ("where", "quick", "awaited")))
    )
    assert got == ["tool where", "MainThread", "MainThread"]


def test_calls_at_once_are_limited_over_all_episodes() -> None:
    state = {"now": 0, "most": 0}

    class Narrow:
        """Pass one by one, or two."""

        read_only = True
        max_parallel = 2

        async def __call__(self) -> str:
            state["now"] += 1
            state["most"] = max(state["most"], state["now"])
            await asyncio.sleep(0.01)
            state["now"] -= 1
            return ""

    toolbox = Toolbox([Narrow], watch=NEVER)

    async def other(tools: OpenTools) -> float:
        got = await tools.answer([called(k, "narrow") for k in range(4)])
        return got.metrics["tool_wait_s"]

    async def use(first: OpenTools) -> list[float]:
        async with toolbox.open(TASK, seed=1) as second:
            return list(await asyncio.gather(other(first), other(second)))

    for _ in range(2):  # in an event loop of its own each time
        waits = using(toolbox, use)
        assert state == {"now": 0, "most": 2}
        assert sum(waits) > 0.02


def test_a_slot_is_given_back_whatever_happens() -> None:
    @tool(max_parallel=1, deadline_s=0.3, tell_late=True)
    async def late(how: str) -> str:
        """Be late, or break.

        Args:
            how: Which.
        """
        if how == "breaks":
            raise ValueError(how)
        await asyncio.sleep(3600)
        return ""

    async def use(tools: OpenTools) -> None:
        for _ in range(2):
            await tools.answer([called(1, "late", how="late")])
            with pytest.raises(EnvError):
                await tools.answer([called(1, "late", how="breaks")])

    using(Toolbox([late], watch=NEVER), use)


def test_a_cancelled_step_leaves_nothing_running() -> None:
    seen: list[str] = []

    @tool(read_only=True)
    async def waits() -> str:
        """Wait."""
        try:
            await asyncio.sleep(3600)
        finally:
            seen.append("ended")
        return ""

    async def use(tools: OpenTools) -> None:
        step = asyncio.ensure_future(tools.answer([called(1, "waits"), called(2, "waits")]))
        await asyncio.sleep(0.02)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        assert seen == ["ended", "ended"]

    using(Toolbox([waits], watch=NEVER), use)


def blocks_async(seconds: float) -> Callable[..., Any]:
    async def blocks() -> str:
        """Block."""
        await asyncio.sleep(0)
        time.sleep(seconds)  # noqa: ASYNC251 - the mistake that is to be found
        return "done"

    return blocks


def test_a_tool_that_blocks_the_event_loop_is_named_once() -> None:
    found: list[str] = []
    watch = LoopWatch(long_s=0.2, stuck_s=60, report=found.append)
    quick = tool(quick=True, name="quick")(lambda: time.sleep(0.25))
    quick.__doc__ = "Block."

    async def patient() -> str:
        """Wait as one should."""
        await asyncio.sleep(0.3)
        return "done"

    def in_a_thread() -> str:
        """Block a thread of its own."""
        time.sleep(0.3)
        return "done"

    names = ("blocks", "blocks", "quick", "patient", "in_a_thread")
    calls = [called(1, name) for name in names]
    answers([blocks_async(0.25), quick, patient, in_a_thread], *calls, watch=watch)
    named = [one for one in found if "'blocks'" in one or "'quick'" in one]
    assert len(named) == 2
    assert "the tool 'blocks' held the event loop for 0." in named[0]
    assert "make it a plain function" in named[0]


def test_one_that_does_not_return_is_named_while_it_blocks() -> None:
    found: list[tuple[str, bool]] = []
    ended = False

    def report(text: str) -> None:
        found.append((text, ended))

    watch = LoopWatch(long_s=60, stuck_s=0.2, report=report)
    answers([blocks_async(1.5)], called(1, "blocks"), watch=watch)
    ended = True
    assert found
    text, after = found[0]
    assert "the tool 'blocks' has been holding the event loop for" in text
    assert not after


def test_the_watching_thread_ends_when_there_is_nothing_to_watch() -> None:
    watch = LoopWatch(stuck_s=0.05, report=lambda text: None)
    assert not watch.watching
    for _ in range(2):  # and begins again
        watch.leave("x", watch.enter("x"))
        assert watch.watching
        deadline = time.monotonic() + 30
        while watch.watching and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not watch.watching
