"""An event loop whose time jumps: what waits for hours is over at once, in the same order.

``run_simulated(work())`` is ``asyncio.run`` with a clock that stands still while code runs and
leaps to the next timer when all of it waits. For schedules and deadlines without a real clock; what
waits for another process or thread must not run in it, for nothing else may move its time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from agentrl.rollout.thread import LoopThread

__all__ = ["SimulatedLoop", "SimulatedThread", "run_simulated"]

T = TypeVar("T")


class _Leaping(selectors.SelectSelector):
    """Waits for nothing: time moves instead."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("everything waits and no timer is set: simulated time cannot go on")
        self.now_s += timeout
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """``time`` is in simulated seconds, from 0.

    Raises:
        RuntimeError: everything waits, and for no timer: nothing would ever happen again.
    """

    def __init__(self) -> None:
        self._leaping = _Leaping()
        super().__init__(self._leaping)

    def time(self) -> float:
        return self._leaping.now_s

    def block(self, seconds: float) -> None:
        """Let time pass as where code holds the thread: no timer fires, nothing else moves."""
        self._leaping.now_s += seconds


def run_simulated(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end in a loop of its own whose time jumps."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(work)


class SimulatedThread(LoopThread):
    """A ``LoopThread`` without a thread: its loop turns while ``run`` is under way, in leaps.

    So time stands still while the caller computes, and what the caller and the loop do follows one
    order, the same every time. A caller that takes time says so: ``run(asyncio.sleep(seconds))``.
    """

    def __init__(self) -> None:
        self._simulated = SimulatedLoop()

    def __enter__(self) -> Self:
        return self

    @property
    def blocked(self) -> bool:
        return False

    @property
    def now_s(self) -> float:
        return self._simulated.time()

    def run(
        self,
        work: Coroutine[Any, Any, T],
        *,
        on_given_up: Callable[[str, float], None] = lambda task, seconds: None,
    ) -> T:
        return self._simulated.run_until_complete(work)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        left = asyncio.all_tasks(self._simulated)
        for one in left:
            one.cancel()
        if left:
            self._simulated.run_until_complete(asyncio.wait(left))
        self._simulated.close()
