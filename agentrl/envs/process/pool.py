"""Keeps worker processes: shares episodes out among them, restarts what died, kills what is stuck.

All of it runs in an event loop in a thread of its own. So it does not matter which event loop plays
the episodes, whether one runs at all (tasks are listed before there is one), or whether it dies.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from itertools import count
from typing import Any, TypeVar

from agentrl.core.errors import AgentRLError, EnvError
from agentrl.envs.process.connection import Answer, Connection, Question, asked
from agentrl.envs.process.launch import Program
from agentrl.envs.process.place import Place, again, closed

__all__ = ["Episode", "Pool"]

T = TypeVar("T")

LAST_TASKS_S = 5.0


class Episode:
    """An episode in a worker, for any thread. If it is forgotten, it is dropped."""

    def __init__(self, pool: Pool, connection: Connection, number: int, made: Answer) -> None:
        self.made = made
        self._pool = pool
        self._connection = connection
        self._number = number
        self._forgotten = weakref.finalize(self, pool.post, pool.drop, connection, number)
        self._forgotten.atexit = False

    def ask(self, call: str, **carried: Any) -> Future[Answer]:
        """Begin a call.

        Raises:
            DataError: what is carried is too large.
        """
        question = asked(call, episode=self._number, **carried)
        self._pool.post(self._connection.send, question)
        return question.future

    def close(self) -> Future[Answer]:
        """Close the environment; its place is free once it has answered, whatever it says."""
        self._forgotten.detach()
        question = asked("close", episode=self._number)
        self._pool.post(self._pool.close_episode, self._connection, self._number, question)
        return question.future

    def drop(self) -> Future[str | None]:
        """Cancel what runs and close the environment.

        The future is done when its place is free; it says what went wrong, if anything did.
        """
        self._forgotten.detach()
        outcome: Future[str | None] = Future()
        outcome.set_running_or_notify_cancel()
        self._pool.post(self._pool.drop, self._connection, self._number, outcome)
        return outcome


class Pool:
    """The workers of one environment.

    ``post``, ``begin``, ``run``, ``abandon``, ``close`` and ``join`` are for any thread but the
    pool's own, the coroutines for ``begin`` and ``run``; the rest is for the pool's own thread.
    """

    def __init__(self, program: Program) -> None:
        self.closing = self.proven = False
        self._limits = program.workers
        self._numbers = count()
        self._waiting: deque[asyncio.Future[Place]] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._posting = threading.RLock()  # again in one thread: post is called by finalizers too
        self._over = False
        self._ended: Future[None] = Future()
        self._ended.set_running_or_notify_cancel()
        self._loop = asyncio.new_event_loop()
        self._told = asyncio.Event()
        self._places = [Place(number, program, self) for number in range(program.workers.processes)]
        self._thread = threading.Thread(target=self._main, name="env workers", daemon=True)
        self._thread.start()

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call ``function`` in the pool's thread, after what was posted before."""
        with self._posting:
            if not self._over:
                self._loop.call_soon_threadsafe(function, *arguments)
                return
        for one in arguments:
            if isinstance(one, Question):
                one.future.set_exception(closed())
            elif isinstance(one, Future):
                one.set_result(None)

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the pool's loop; cancelling the future cancels it."""
        with self._posting:
            if not self._over:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise closed()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the pool's loop and wait for it."""
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def abandon(self) -> None:
        """Begin to end all processes; does not wait."""
        self.post(self._told.set)

    def close(self) -> Future[None]:
        """Begin to end all processes; the future is done when they are gone."""
        self.abandon()
        return self._ended

    def join(self) -> None:
        """Wait for the end of the thread, after ``close``."""
        self._thread.join()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._live())
        finally:
            with self._posting:
                self._over = True
            self._loop.run_until_complete(_settle())  # what was posted last is answered too
            self._loop.close()
            self._ended.set_result(None)

    async def _live(self) -> None:
        await self._told.wait()
        self.closing = True
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(closed())
        await asyncio.gather(*(place.close() for place in self._places))

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task of the pool's own."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Places for episodes.

    async def open(self, task: Any, seed: int) -> Episode:
        """Make an environment in the worker with the fewest episodes, once there is room.

        Raises:
            AgentRLError: what ``make`` raised. EnvDiedError: the process died over it, or none
                can be started.
        """
        place, connection = await self._room()
        number = next(self._numbers)
        connection.episodes.add(number)
        place.reserved -= 1
        try:
            question = asked("make", episode=number, task=task, seed=seed)
            connection.send(question)
            made = await asyncio.wrap_future(question.future)
        except BaseException:
            self.drop(connection, number)  # cancelled, or failed half-way
            raise
        place.deaths = 0
        return Episode(self, connection, number, made)

    async def _room(self) -> tuple[Place, Connection]:
        """A reserved place and its process."""
        while True:
            place = await self._reserve()
            try:
                return place, await place.ready()
            except BaseException as error:
                place.reserved -= 1
                self.share_out()
                elsewhere = not place.usable and any(one.failure is None for one in self._places)
                if not isinstance(error, AgentRLError) or not elsewhere:
                    raise

    async def _reserve(self) -> Place:
        if self.closing:
            raise closed()
        waiter: asyncio.Future[Place] = self._loop.create_future()
        self._waiting.append(waiter)
        self.share_out()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().reserved -= 1
                self.share_out()
            raise

    def share_out(self) -> None:
        """Give free places to those who wait, first come first served."""
        while self._waiting:
            usable = [one for one in self._places if one.usable]
            room = [one for one in usable if one.load < self._limits.episodes]
            free = [one for one in room if not one.suspect]
            if usable and not free:
                return
            waiter = self._waiting.popleft()
            if waiter.done():  # it was cancelled
                continue
            if not usable:
                waiter.set_exception(again(self._places[0].failure))
                continue
            chosen = min(free, key=lambda one: (one.load, one.number))
            chosen.reserved += 1
            waiter.set_result(chosen)

    def _release(self, connection: Connection, number: int) -> None:
        connection.episodes.discard(number)
        if connection.retired and not connection.episodes and connection.death is None:
            self.spawn(connection.end("was replaced"))
        self.share_out()

    def close_episode(self, connection: Connection, number: int, question: Question) -> None:
        connection.send(question)
        question.future.add_done_callback(lambda _: self._release(connection, number))

    def drop(
        self, connection: Connection, number: int, outcome: Future[str | None] | None = None
    ) -> None:
        """End an episode that nobody waits for any more; ``outcome`` as of ``Episode.drop``."""
        connection.dropping.add(number)
        self.spawn(self._drop(connection, number, outcome))

    async def _drop(
        self, connection: Connection, number: int, outcome: Future[str | None] | None
    ) -> None:
        words: str | None = None
        try:
            words = await self._dropped(connection, number)
        finally:
            connection.dropping.discard(number)
            self._release(connection, number)
            if outcome is not None:
                outcome.set_result(words)

    async def _dropped(self, connection: Connection, number: int) -> str | None:
        """Have an episode dropped. A process that is stuck in it is killed.

        While *another* episode holds the process, this one waits: whoever plays that one has a
        deadline for it, and it must not be killed for this one's.
        """
        grace_s = self._limits.grace_s
        question = asked("drop", episode=number)
        connection.send(question)
        answer = asyncio.wrap_future(question.future)
        while not (await asyncio.wait([answer], timeout=grace_s))[0]:
            running = await connection.running()
            if answer.done() or connection.dying:
                continue
            if running is None:
                await connection.end(
                    f"did not answer for {grace_s:g} s and was killed: it was stopped, or stuck "
                    "in native code",
                    at_once=True,
                )
            elif running["name"] in (f"episode {number}", None):
                where = "".join(f"\n  {one}" for one in running["stack"])
                await connection.end(
                    f"was blocked by an episode that had been cancelled, and was killed after "
                    f"{grace_s:g} s. It was at{where}",
                    at_once=True,
                )
        try:
            abandoned = answer.result().value["abandoned"]
        except AgentRLError as error:
            return str(error)
        if not abandoned:
            return None
        for place in self._places:
            place.retire(connection)
        return (
            f"the episode did not end within {grace_s / 2:g} s after it had been cancelled; "
            f"{connection.label} is replaced once its other episodes are over"
        )

    # What is asked before or beside episodes.

    async def abilities(self) -> dict[str, Any]:
        """What the factory is: ``splits``, ``demonstrates``, ``tools``. Starts the first worker."""
        await self._places[0].ready()
        return self._places[0].abilities

    async def list_tasks(self, split: str, start: int) -> dict[str, Any]:
        """A page of a split's tasks: ``count`` of all, ``tasks`` from ``start``."""
        connection = await self._least_loaded(lambda place: place.number)
        question = asked("tasks", split=split, start=start)
        connection.send(question)
        limit = self._limits.start_timeout_s
        try:
            async with asyncio.timeout(limit):
                page: dict[str, Any] = (await asyncio.wrap_future(question.future)).value
                return page
        except TimeoutError:
            words = f"did not list the tasks of split '{split}' within {limit:g} s and was killed"
            await connection.end(words, at_once=True)
            raise EnvError(str(connection.death)) from None

    async def demonstrate(self, task: Any, seed: int, noise: float) -> Episode:
        """Begin a demonstration. It waits for no place: its caller may block who would free one."""
        connection = await self._least_loaded(lambda place: place.load)
        number = next(self._numbers)
        connection.episodes.add(number)
        question = asked("demonstrate", episode=number, task=task, seed=seed, noise=noise)
        connection.send(question)
        try:
            return Episode(self, connection, number, await self._in_time(question))
        except BaseException:
            self.drop(connection, number)
            raise

    async def next_steps(self, episode: Episode) -> Answer:
        """The next few steps of a demonstration."""
        return await self._in_time(episode.ask("next"))

    async def _in_time(self, question: Question | Future[Answer]) -> Answer:
        future = question.future if isinstance(question, Question) else question
        limit = self._limits.start_timeout_s
        try:
            async with asyncio.timeout(limit):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise EnvError(f"the expert gave no step within {limit:g} s") from None

    async def _least_loaded(self, key: Callable[[Place], int]) -> Connection:
        if self.closing:
            raise closed()
        usable = [place for place in self._places if place.usable] or self._places
        return await min(usable, key=key).ready()


async def _settle() -> None:
    """Let what is left come to its end; everything it could wait for is gone."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, stuck = await asyncio.wait(left, timeout=LAST_TASKS_S)
        for one in stuck:
            one.cancel()
