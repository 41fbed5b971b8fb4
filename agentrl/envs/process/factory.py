"""``in_processes``: an environment's factory whose episodes are played in worker processes."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, overload

from agentrl.core.errors import DataError, EnvDiedError, EnvError
from agentrl.core.message import Message, ToolSpec
from agentrl.core.protocols import Demonstration
from agentrl.core.task import Task
from agentrl.core.trajectory import Observation, StepResult
from agentrl.envs.process.codec import plain
from agentrl.envs.process.launch import Program, Workers
from agentrl.envs.process.pool import Episode, Pool

__all__ = ["ProcessEnv", "ProcessFactory", "Workers", "in_processes"]


def in_processes(
    name: str, options: Mapping[str, Any] | None = None, workers: Workers | None = None
) -> ProcessFactory:
    """The factory of an environment, with its episodes in worker processes.

    It gives what the factory itself would give, to the letter; a ``Demonstrator`` stays one. The
    first process is started here, the others when they are needed.

    Args:
        name: The environment, registered or ``module:attr``, as the worker's interpreter finds it.
        options: Its keyword arguments: plain data.
        workers: How many processes, and of which interpreter; default: one, of this one.

    Raises:
        ConfigError: the interpreter does not exist or does not do, or whatever making the factory
            raises: an unknown name or option, an import that fails.
    """
    workers = workers or Workers()
    pool = Pool(Program(name, dict(options or {}), workers))
    try:
        abilities = pool.run(pool.abilities())
    except BaseException:
        pool.close().result()
        pool.join()
        raise
    kind = DemonstratingFactory if abilities["demonstrates"] else ProcessFactory
    return kind(pool, abilities, workers)


class ProcessFactory:
    """An ``EnvFactory`` in front of worker processes; made by ``in_processes``.

    ``aclose`` ends the processes. Without it they end when the factory is forgotten or its process
    ends, however that comes about.
    """

    def __init__(self, pool: Pool, abilities: Mapping[str, Any], workers: Workers) -> None:
        self._pool = pool
        self._abilities = abilities
        self._workers = workers
        self._listed: dict[str, ListedTasks] = {}
        weakref.finalize(self, pool.abandon)

    @property
    def splits(self) -> Sequence[str]:
        splits: Sequence[str] = self._abilities["splits"]
        return splits

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """Tools that every episode has, where the environment's factory names them."""
        tools: Sequence[ToolSpec] = self._abilities["tools"]
        return tools

    @property
    def capacity(self) -> int:
        """Episodes that can be open at a time; ``make`` waits for a place."""
        return self._workers.processes * self._workers.episodes

    def tasks(self, split: str) -> Sequence[Task]:
        """Listed once, by one worker, a page at a time when they are looked at."""
        if split not in self._listed:
            self._listed[split] = ListedTasks(self._pool, split)
        return self._listed[split]

    async def make(self, task: Task, *, seed: int) -> ProcessEnv:
        """Make an episode in the process that plays the fewest.

        Raises:
            AgentRLError: what ``make`` of the environment raised. EnvDiedError: its process died.
        """
        work = self._pool.begin(self._pool.open(plain(task), seed))
        episode = await asyncio.wrap_future(work)
        kind = ReplayingEnv if episode.made.value["replays"] else ProcessEnv
        return kind(self, self._pool, episode)

    async def aclose(self) -> None:
        """Close all episodes and end all processes; twice is as good as once."""
        await asyncio.shield(asyncio.wrap_future(self._pool.close()))
        self._pool.join()


class DemonstratingFactory(ProcessFactory):
    """A ``ProcessFactory`` whose environment has an expert."""

    def demonstrate(self, task: Task, *, seed: int, noise: float) -> Iterator[Demonstration]:
        """Steps of the environment's expert, a few at a time."""
        episode = self._pool.run(self._pool.demonstrate(plain(task), seed, noise))
        try:
            done = False
            while not done:
                found = self._pool.run(self._pool.next_steps(episode)).value
                yield from found["steps"]
                done = found["done"]
        finally:
            episode.drop()


class ListedTasks(Sequence[Task]):
    """The tasks of a split, fetched from a worker when they are looked at.

    Raises:
        AgentRLError: what listing them raises, an unknown split among others.
    """

    def __init__(self, pool: Pool, split: str) -> None:
        self._pool = pool
        self._split = split
        self._lock = threading.Lock()
        self._tasks: list[Task] = []
        self._length = -1
        self._fetch()

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Task, ...]: ...
    def __getitem__(self, index: int | slice) -> Task | tuple[Task, ...]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(self._length)))
        number = index + self._length if index < 0 else index
        if not 0 <= number < self._length:
            raise IndexError(f"task {index} of {self._length} in split '{self._split}'")
        with self._lock:
            while len(self._tasks) <= number:
                self._fetch()
            return self._tasks[number]

    def __iter__(self) -> Iterator[Task]:
        return (self[number] for number in range(self._length))

    def _fetch(self) -> None:
        page = self._pool.run(self._pool.list_tasks(self._split, len(self._tasks)))
        if self._length not in (-1, page["count"]) or (not page["tasks"] and page["count"]):
            raise DataError(
                f"the environment listed {self._length} tasks in split '{self._split}', and "
                f"{page['count']} when it was asked for more: they must be the same each time"
            )
        self._length = page["count"]
        self._tasks += page["tasks"]


class ProcessEnv:
    """An ``Env`` in front of one in a worker process.

    Cancelling a call ends the episode: the worker is told to drop it.
    """

    def __init__(self, owner: ProcessFactory, pool: Pool, episode: Episode) -> None:
        self._owner = owner  # its processes must not end while an episode is played
        self._pool = pool
        self._episode = episode
        self._tools: Sequence[ToolSpec] = episode.made.tools or []
        self._dropped: Future[str | None] | None = None
        self._over = False

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return self._tools

    async def reset(self) -> Observation:
        observation: Observation = await self._ask("reset", None)
        return observation

    async def step(self, action: Message) -> StepResult:
        result: StepResult = await self._ask("step", action)
        return result

    async def aclose(self) -> None:
        """Close the environment; returns when its place is free.

        Raises:
            EnvError: what closing raised, or that the environment would not end.
        """
        if self._over:
            if self._dropped is not None:
                outcome, self._dropped = self._dropped, None
                words = await asyncio.wrap_future(outcome)
                if words is not None:
                    raise EnvError(words)
            return
        self._over = True
        if not self._pool.closing:  # or else it was closed with its process
            await self._answered("close", self._episode.close())

    async def _ask(self, call: str, given: Any) -> Any:
        if self._over:
            raise EnvError(f"{call} called after the episode was closed, cancelled, or had died")
        future = self._episode.ask(call, given=plain(given))
        return await self._answered(call, future)

    async def _answered(self, call: str, future: Future[Any]) -> Any:
        try:
            answer = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._over, self._dropped = True, self._episode.drop()
            raise
        except EnvDiedError:
            self._over = True
            raise
        if answer.tools is not None:
            self._tools = answer.tools
        return answer.value


class ReplayingEnv(ProcessEnv):
    """A ``ProcessEnv`` whose environment can replay actions."""

    async def replay(self, actions: Sequence[Message]) -> Any:
        return await self._ask("replay", actions)
