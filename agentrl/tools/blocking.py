"""Finds the tool that blocks the event loop, in which every episode plays.

A coroutine that computes, or waits without ``await``, holds the thread of all episodes: no deadline
fires and no other tool runs. Each stretch that a tool runs without giving the loop back is timed;
a long one is reported by the tool's name, one that does not end is reported while it lasts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

__all__ = ["LoopWatch"]

T = TypeVar("T")
_LOG = logging.getLogger("agentrl.tools")


class LoopWatch:
    """Times how long tools hold the event loop. One serves any number of episodes.

    Args:
        long_s: A stretch of this length is reported when it ends, once for each tool.
        stuck_s: One of this length is reported while it lasts, by a thread that sleeps otherwise
            and ends when there has been nothing to watch for as long.
        clock: Seconds.
        report: Told of what was found, in words.
    """

    def __init__(
        self,
        *,
        long_s: float = 0.5,
        stuck_s: float = 10.0,
        clock: Callable[[], float] = time.perf_counter,
        report: Callable[[str], None] = _LOG.warning,
    ) -> None:
        self._long_s = long_s
        self._stuck_s = stuck_s
        self._clock = clock
        self._report = report
        self._reported: set[str] = set()
        self._running: dict[int, tuple[str, float]] = {}  # by thread: one loop, one stretch
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def watching(self) -> bool:
        """Whether its thread is there."""
        return self._thread is not None

    def enter(self, name: str) -> float:
        """The tool ``name`` holds the loop from now on; returns when that began."""
        started = self._clock()
        with self._lock:
            self._running[threading.get_ident()] = (name, started)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="tool-watch", daemon=True)
                self._thread.start()
        return started

    def leave(self, name: str, started: float) -> None:
        """It has given the loop back."""
        self._running.pop(threading.get_ident(), None)
        held = self._clock() - started
        if held >= self._long_s and name not in self._reported:
            self._reported.add(name)
            self._report(
                f"the tool '{name}' held the event loop for {held:.2f} s, and with it every "
                "episode: make it a plain function (which runs in a thread), or await what it "
                "waits for (asyncio.to_thread for what cannot be awaited)"
            )

    async def follow(self, name: str, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await ``coroutine``, each of its stretches timed."""
        result: T = await _Followed(self, name, coroutine)
        return result

    def _watch(self) -> None:
        told: set[tuple[str, float]] = set()
        idle_since = self._clock()
        while True:
            time.sleep(self._stuck_s / 4)
            running = list(self._running.values())
            now = self._clock()
            for one in running:
                if now - one[1] >= self._stuck_s and one not in told:
                    told.add(one)
                    self._report(
                        f"the tool '{one[0]}' has been holding the event loop for "
                        f"{now - one[1]:.1f} s and goes on: no episode moves until it returns"
                    )
            if running:
                idle_since = now
                continue
            with self._lock:
                if now - idle_since >= self._stuck_s and not self._running:
                    self._thread = None
                    return


class _Followed:
    """Awaits a coroutine in stretches; what the loop throws in reaches it."""

    def __init__(self, watch: LoopWatch, name: str, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._watch = watch
        self._name = name
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        resume: Callable[[Any], Any] = self._coroutine.send
        given: Any = None
        while True:
            started = self._watch.enter(self._name)
            try:
                waits_for = resume(given)
            except StopIteration as stop:
                return stop.value
            finally:
                self._watch.leave(self._name, started)
            try:
                given = yield waits_for
                resume = self._coroutine.send
            except BaseException as error:
                given, resume = error, self._coroutine.throw
