"""The event loop of all episodes lives in a thread of its own; the learner owns the main one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import math
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, TypeVar, cast

from agentrl.core.errors import EpisodeError

__all__ = ["Blockage", "LoopThread"]

T = TypeVar("T")
POLL_S = 0.5
_LOG = logging.getLogger("agentrl")


@dataclass(frozen=True, slots=True)
class Blockage:
    """The event loop could not turn for ``seconds``.

    Attributes:
        task: Name of the task whose code ran; an episode's names its environment.
        where: File, line and function it was seen in.
    """

    task: str
    where: str
    seconds: float

    def __str__(self) -> str:
        return (
            f"the event loop has been blocked for {self.seconds:.1f} s by {self.task}, at "
            f"{self.where}. Meanwhile no other episode moves and no deadline fires. Code that "
            "computes or waits without 'await' belongs in worker processes (env.workers)"
        )


class LoopThread:
    """An event loop in a thread. ``run`` blocks the caller; exceptions cross over.

    Ctrl-C in the caller cancels what runs in the loop and waits for its teardown. A second thread
    looks whether the loop turns: code that blocks it is named aloud, and given up in the end.

    Args:
        blocked_after_s: A loop that has not turned for so long is called blocked.
        give_up_s: A caller of ``run`` waits for a blocked loop no longer than that.
        teardown_s: What is cancelled may take so long to close what it had opened.
        on_blocked: Told of each blockage, once, from the second thread; by default it is logged.

    Attributes:
        blockages: Those that are over.
    """

    def __init__(
        self,
        *,
        blocked_after_s: float = 2.0,
        give_up_s: float = math.inf,
        teardown_s: float = 60.0,
        on_blocked: Callable[[Blockage], None] = lambda one: _LOG.warning("%s", one),
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(_DaemonThreads(1))
        self._thread = threading.Thread(target=self._loop.run_forever, name="episodes", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name="episodes-watch", daemon=True)
        self._blocked_after_s = blocked_after_s
        self._give_up_s = give_up_s
        self._teardown_s = teardown_s
        self._on_blocked = on_blocked
        self._leaving = threading.Event()
        self._blocked_s = 0.0  # in turns of the second thread: a process that sleeps is not blocked
        self.blockages: list[Blockage] = []

    def __enter__(self) -> LoopThread:
        self._thread.start()
        self._watcher.start()
        return self

    @property
    def blocked(self) -> bool:
        """The loop has been given up: nothing can run in it."""
        return not self._thread.is_alive() or self._blocked_s > self._give_up_s

    def run(
        self,
        work: Coroutine[Any, Any, T],
        *,
        on_given_up: Callable[[str, float], None] = lambda task, seconds: None,
    ) -> T:
        """Run ``work`` in the loop and return its result.

        Args:
            work: What to run.
            on_given_up: Told of the task that blocks the loop, before this raises (its name, and
                for how many seconds it has): ``Runner.blame``.

        Raises:
            EpisodeError: the loop has been blocked for ``give_up_s``; says by what.
        """
        root: list[asyncio.Task[Any]] = []

        async def rooted() -> T:
            root.append(cast(asyncio.Task[Any], asyncio.current_task()))
            return await work

        future = None
        try:  # an interrupt may come as soon as the work is handed over
            future = asyncio.run_coroutine_threadsafe(rooted(), self._loop)
            while not concurrent.futures.wait((future,), timeout=POLL_S).done:
                if not self._thread.is_alive():
                    raise EpisodeError("the event loop was stopped by a part of the run. Stopping")
                if self.blocked:
                    blockage = self._blockage()
                    on_given_up(blockage.task, blockage.seconds)
                    raise EpisodeError(f"{blockage}. Stopping")
            return future.result()
        except BaseException:
            if (future is None or not future.done()) and not self.blocked:
                self._cancel(root)
            raise

    @contextmanager
    def entered(self, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter a context in the loop, and leave it there at the end."""

        async def enter() -> T:
            return await context.__aenter__()

        async def leave() -> None:
            await context.__aexit__(None, None, None)

        value = self.run(enter())
        try:
            yield value
        finally:
            if not self.blocked:
                self.run(leave())

    @contextmanager
    def iterate(
        self, stream: AbstractAsyncContextManager[AsyncIterator[T]]
    ) -> Iterator[Iterator[T]]:
        """Take from a stream in the loop as from an iterator here; it goes on in between.

        ``with loop.iterate(runner.stream(requests, ahead=8)) as groups: for group in groups: ...``
        """

        async def take(items: AsyncIterator[T]) -> tuple[bool, T | None]:
            try:
                return True, await anext(items)
            except StopAsyncIteration:
                return False, None

        def drawn(items: AsyncIterator[T]) -> Iterator[T]:
            while True:
                there, item = self.run(take(items))
                if not there:
                    return
                yield item  # type: ignore[misc]

        with self.entered(stream) as items:
            yield drawn(items)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leaving.set()
        early = not self._thread.is_alive()  # a part has stopped the loop
        if not self.blocked:
            self._cancel()
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(1.0 if self.blocked else self._teardown_s)
        if self._thread.is_alive():
            _LOG.warning("%s. Its thread is left behind", self._blockage())
            return
        if early:
            self._loop.run_until_complete(self._cancelled(None))  # by nobody else any more
        self._loop.close()

    def _cancel(self, root: list[asyncio.Task[Any]] | None = None) -> None:
        ended = asyncio.run_coroutine_threadsafe(self._cancelled(root), self._loop)
        concurrent.futures.wait((ended,), timeout=self._teardown_s + POLL_S)

    async def _cancelled(self, root: list[asyncio.Task[Any]] | None) -> None:
        """Cancel ``root`` and let it close what it opened; for ``None`` all that still runs."""
        every = asyncio.all_tasks() - {asyncio.current_task()} if root is None else root
        for one in every:
            one.cancel()
        if every:
            await asyncio.wait(every, timeout=self._teardown_s)

    # The second thread

    def _watch(self) -> None:
        """Ask the loop to turn, again and again; who holds it when it does not?"""
        while not self._leaving.wait(self._blocked_after_s / 4):
            turned, seen = threading.Event(), None
            try:
                self._loop.call_soon_threadsafe(turned.set)
            except RuntimeError:
                return  # the loop is closed
            while not turned.wait(self._blocked_after_s):
                self._blocked_s += self._blocked_after_s
                if seen is None:
                    seen = self._blockage()
                    self._on_blocked(seen)
                if self._leaving.is_set():
                    return
            if seen is not None:
                self.blockages.append(replace(seen, seconds=self._blocked_s))
                self._blocked_s = 0.0

    def _blockage(self) -> Blockage:
        task = asyncio.current_task(self._loop)
        frame = sys._current_frames().get(self._thread.ident or 0)
        where = "an unknown place"
        if frame is not None:
            code = frame.f_code
            where = f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
        name = "a callback" if task is None else task.get_name()
        return Blockage(name, where, self._blocked_s)


class _DaemonThreads(ThreadPoolExecutor):
    """Each call in a new daemon thread: one that never returns takes no other's place.

    ``asyncio.to_thread`` uses it. The usual pool would run out of threads after a few calls that
    hang, and the interpreter would wait for them at its end.
    """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=work, name="episodes-call", daemon=True).start()
        return future
