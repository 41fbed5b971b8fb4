"""An attempt under way: the one place where foreign code is waited for, and failures are judged.

Environments, engines and memories are other people's code. ``Flight.call`` waits for them with a
deadline and decides who is to blame (``docs/reference/faults.md`` is the specification):

- whatever an environment raises, returns wrongly or does not return is an infra failure;
- of engine and memory an ``EpisodeError`` is one, anything else is a bug and stops the run;
- what comes back after the attempt was given up is dropped and counted, whatever it is.

The calls of an attempt, ``aclose`` included, are made one after the other in one task of its own.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from agentrl.agents.outage import Outage
from agentrl.core.errors import AgentRLError, ConfigError, DataError, EnvError, EpisodeError
from agentrl.core.protocols import Env
from agentrl.core.trajectory import Failure, Step

__all__ = ["Deadlines", "Episode", "Failed", "Flight", "Place", "Pulse", "failure_of"]

T = TypeVar("T")
Place = Literal["make", "reset", "memory", "tokens", "sample", "step", "close"]
_OURS = ("memory", "sample")  # parts of the framework: what they must not raise is a bug

# asyncio itself holds only weak references to tasks: what ignores its cancellation is held here.
_STRAYS: set[asyncio.Task[None]] = set()


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long the machine may take, in seconds. Missing one is an infra failure.

    Attributes:
        make_s, reset_s, step_s, close_s: One call of the environment.
        sample_s: One answer of the engine, or one view of the memory (which may ask an engine).
        episode_s: The whole attempt, waiting for limits included.
        cancel_s: What a call may take to end once it is cancelled; then it is left to itself.
    """

    make_s: float = 300.0
    reset_s: float = 120.0
    step_s: float = 120.0
    sample_s: float = 600.0
    close_s: float = 30.0
    episode_s: float = math.inf
    cancel_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Episode:
    """Who is playing what: the identity of a trajectory before it exists."""

    group_id: str
    task_id: str
    trial: int
    attempt: int
    seed: int
    env: str = ""

    @property
    def id(self) -> str:
        return f"{self.group_id}/{self.trial}/{self.attempt}"


@dataclass(slots=True)
class Pulse:
    """When any of several flights was last seen to move, in the event loop's seconds."""

    last_s: float = 0.0


class Failed(Exception):
    """Carries a Failure from the boundary where it was seen to the end of the episode."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure

    @classmethod
    def at(cls, boundary: str, error: BaseException) -> Failed:
        return cls(Failure(boundary, type(error).__name__, str(error)))


def failure_of(place: Place, error: BaseException) -> Failure | None:
    """The infra failure that ``error`` at ``place`` is; ``None``: it must stop the run."""
    if place in _OURS and not isinstance(error, EpisodeError):
        return None
    if place == "make" and isinstance(error, DataError | ConfigError):
        return None  # no machine can play such a task: a damaged game, a wrong setting
    if not isinstance(error, AgentRLError):
        error = EnvError(f"{place} raised {type(error).__name__}: {error}")
    return Failure(place, type(error).__name__, str(error))


class Flight:
    """One attempt at an episode: what it has done and what it waits for.

    Written in the event loop's thread; the attributes may be read from any other.

    Args:
        episode: Who plays what.
        deadlines: Of its calls.
        pulse: Shared by flights of one event loop.
        on_call: Told of each call that returned: its place and the seconds it took.
        on_late: Told of each call that returned after the attempt was given up.

    Attributes:
        steps: The finished steps.
        waiting_for: Place of the call under way; empty between calls. since_s: when it began.
        verdict: Why the attempt was given up, if it was.
        outage: It failed because the engine was down, for others too; set by the ``EngineGate``.
        close_failure: The environment did not close.
    """

    def __init__(
        self,
        episode: Episode,
        deadlines: Deadlines = Deadlines(),
        *,
        pulse: Pulse | None = None,
        on_call: Callable[[Place, float], None] = lambda place, seconds: None,
        on_late: Callable[[Place], None] = lambda place: None,
    ) -> None:
        self.episode = episode
        self.deadlines = deadlines
        self.steps: list[Step] = []
        self.waiting_for: Place | Literal[""] = ""
        self.since_s = 0.0
        self.verdict: Failure | None = None
        self.outage: Outage = ""
        self.close_failure: Failure | None = None
        self._pulse = Pulse() if pulse is None else pulse
        self._on_call = on_call
        self._on_late = on_late
        self._env: Env | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._close_overdue = False
        self._calls = 0

    @property
    def name(self) -> str:
        """The name of its task, which says whose code a blocked event loop is in."""
        where = f" in environment '{self.episode.env}'" if self.episode.env else ""
        return f"episode {self.episode.id}{where}"

    async def run(self, playing: Callable[[], Awaitable[None]]) -> None:
        """Run ``playing`` in a task of its own, then close the environment, and wait for the end.

        Returns when all is done, or when it is known that a call will not end although it was
        cancelled; that task is then left to itself, and the environment is closed beside it.

        Raises:
            Exception: a bug that ``playing`` raised.
            asyncio.CancelledError: this call was cancelled; the environment is closed by then.
        """
        if self.verdict is not None:
            return  # given up before it began
        self._loop = asyncio.get_running_loop()
        self._stuck: asyncio.Future[None] = self._loop.create_future()
        task = self._task = self._loop.create_task(self._fly(playing), name=self.name)
        end = None
        if self.deadlines.episode_s < math.inf:
            end = self._loop.call_later(self.deadlines.episode_s, self._episode_overdue)
        try:
            await self._end(task)
        except asyncio.CancelledError:
            if not self._closing and not task.cancelling():
                self._cancel(task)
            await self._end(task)
            raise
        finally:
            if end is not None:
                end.cancel()
        if task.done() and not (task.cancelled() and self.verdict is not None):
            task.result()

    def end(self, failure: Failure) -> bool:
        """Give the attempt up: ``failure`` becomes its verdict. False: it has ended already."""
        task = self._task
        if self.verdict is not None or self._closing or (task is not None and task.done()):
            return False
        self.verdict = failure
        if task is not None:
            self._cancel(task)
        return True

    async def make(self, make_env: Callable[[], Awaitable[Env]]) -> Env:
        """Make the environment; also one that comes too late is closed."""

        async def made() -> Env:
            self._env = await make_env()
            return self._env

        return await self.call("make", made, self.deadlines.make_s)

    async def call(self, place: Place, work: Callable[[], Awaitable[T]], seconds: float) -> T:
        """Wait for foreign code, at most so many ``seconds``.

        Raises:
            Failed: an infra failure.
            asyncio.CancelledError: the attempt was given up (``verdict``) or cancelled.
            Exception: what ``failure_of`` says must stop the run.
        """
        started = self._begin(place)
        timer = self._loop.call_later(seconds, self._overdue, place, seconds)
        try:
            result = await work()
        except asyncio.CancelledError:
            if self._given_up:
                raise
            raise Failed.at(place, EnvError(f"{place} was cancelled by its own code")) from None
        except (Exception, SystemExit) as error:
            if self._given_up:
                raise asyncio.CancelledError from error
            failure = failure_of(place, error)
            if failure is None:
                raise
            raise Failed(failure) from error
        finally:
            timer.cancel()
        if self._given_up:
            self._on_late(place)
            raise asyncio.CancelledError
        self._returned(place, started, seconds)
        return result

    def waits_for(self, place: Place) -> None:
        """Note that it waits for something of the framework's own."""
        self._begin(place)

    @property
    def _given_up(self) -> bool:
        cancelled = self._task is not None and self._task.cancelling() > 0
        return self.verdict is not None or cancelled

    async def _fly(self, playing: Callable[[], Awaitable[None]]) -> None:
        try:
            await playing()
        except asyncio.CancelledError:
            if self.verdict is None:
                raise
        finally:
            if not self._stuck.done():
                await self._close()
            elif self._env is not None and not self._closing:
                await self._close()  # made after it was given up

    async def _close(self) -> None:
        if self._env is None:
            return
        self._closing = True
        self._begin("close")
        timer = self._loop.call_later(self.deadlines.close_s, self._cancel_close)
        try:
            await self._env.aclose()
        except asyncio.CancelledError:
            self.close_failure = self._late_close() if self._close_overdue else _INTERRUPTED
        except (Exception, SystemExit) as error:
            self.close_failure = failure_of("close", error)
        finally:
            timer.cancel()
            self.waiting_for = ""

    async def _end(self, task: asyncio.Task[None]) -> None:
        """Wait until the task is done, or stuck."""
        await asyncio.wait((task, self._stuck), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            self._stuck.cancel()
            return
        _STRAYS.add(task)
        task.add_done_callback(_forget)
        if self._closing:
            self.close_failure = self._late_close()
        elif self._env is not None:
            await self._close_beside(self._env)

    async def _close_beside(self, env: Env) -> None:
        """Close an environment one of whose calls does not end."""
        self._closing = True

        async def closing() -> None:
            try:
                await env.aclose()
            except (Exception, SystemExit) as error:
                self.close_failure = failure_of("close", error)

        task = self._loop.create_task(closing(), name=self.name)
        await asyncio.wait((task,), timeout=self.deadlines.close_s)
        if not task.done():
            task.cancel()
            self.close_failure = self._late_close()
            _STRAYS.add(task)
            task.add_done_callback(_forget)

    def _begin(self, place: Place) -> float:
        self._calls += 1
        self.waiting_for = place
        self.since_s = self._pulse.last_s = self._loop.time()
        return self.since_s

    def _returned(self, place: Place, started: float, seconds: float) -> None:
        now = self._loop.time()
        nobody_moved_s = now - self._pulse.last_s
        self._pulse.last_s = now
        self.waiting_for = ""
        if now - started > seconds and nobody_moved_s > seconds / 2:
            # Its timer could not fire, and nothing else could move: this call held the thread.
            text = (
                f"{_late_text(place, seconds)}: it blocked the event loop for {now - started:g} s"
            )
            raise Failed(Failure(place, "DeadlineError", text))
        self._on_call(place, now - started)

    def _overdue(self, place: Place, seconds: float) -> None:
        self.end(Failure(place, "DeadlineError", _late_text(place, seconds)))

    def _episode_overdue(self) -> None:
        waited = self._loop.time() - self.since_s
        self.end(
            Failure(
                "episode",
                "DeadlineError",
                f"the episode was not over after {self.deadlines.episode_s:g} s; it had made "
                f"{len(self.steps)} steps and was waiting for '{self.waiting_for}' for "
                f"{waited:.1f} s",
            )
        )

    def _cancel(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        self._loop.call_later(self.deadlines.cancel_s, self._check_stuck, self._calls)

    def _cancel_close(self) -> None:
        self._close_overdue = True
        if self._task is not None:
            self._cancel(self._task)

    def _check_stuck(self, calls: int) -> None:
        """Still in the call that was cancelled: it will not end."""
        if self._calls == calls and not self._stuck.done():
            self._stuck.set_result(None)

    def _late_close(self) -> Failure:
        return Failure("close", "DeadlineError", _late_text("close", self.deadlines.close_s))


_INTERRUPTED = Failure("close", "EnvError", "close was cancelled before it had ended")


def _late_text(place: str, seconds: float) -> str:
    return f"{place} did not return within {seconds:g} s"


def _forget(task: asyncio.Task[None]) -> None:
    _STRAYS.discard(task)
    if not task.cancelled():
        task.exception()  # looked at, so that asyncio does not complain; its attempt is long over
