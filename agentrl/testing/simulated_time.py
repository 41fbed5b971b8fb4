"""An event loop whose time jumps: what waits for hours is over at once, in the same order.

``run_simulated(work())`` is ``asyncio.run`` with a clock that stands still while code runs and
leaps to the next timer when all of it waits. For schedules and deadlines without a real clock; what
waits for another process or thread must not run in it, for nothing else may move its time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["SimulatedLoop", "run_simulated"]

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


def run_simulated(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end in a loop of its own whose time jumps."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(work)
