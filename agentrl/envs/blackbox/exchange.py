"""Between an agent that asks and an environment that answers: one mailbox an episode.

The agent's requests arrive in the endpoint's thread, the environment lives in that of all episodes.
Everything here may be called from any thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from agentrl.core.errors import EnvError
from agentrl.core.message import Message
from agentrl.core.task import Task
from agentrl.envs.blackbox.chat import Question

__all__ = ["Asked", "Broken", "Ended", "Exchange", "Over"]


class Over(Exception):
    """The episode is over: whoever asks is told why."""


@dataclass(eq=False, slots=True)
class Asked:
    """A question under way. ``answer`` is set once, by the environment or at the end."""

    question: Question
    answer: Future[Message] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class Ended:
    """The agent has ended; ``result`` is what it returned."""

    result: Any


@dataclass(frozen=True, slots=True)
class Broken:
    """The agent has failed; ``why`` in words."""

    why: str


Event = Asked | Ended | Broken


class Exchange:
    """One episode, as agent and environment share it.

    Args:
        key: What the agent calls itself by.
        task: What it is to do.
        seed: Of the episode.
    """

    def __init__(self, key: str, task: Task, seed: int) -> None:
        self.key = key
        self.task = task
        self.seed = seed
        self._lock = threading.Lock()
        self._events: deque[Event] = deque()
        self._waiter: Future[Event] | None = None
        self._open: set[Asked] = set()
        self._last: Asked | None = None
        self._over: str | None = None

    def ask(self, question: Question, *, again: bool = False) -> Future[Message]:
        """Ask the policy; questions are answered one after the other.

        Args:
            question: What is asked.
            again: The client says that it asks once more because no answer reached it. Then the
                same question is the same step: nothing is sampled twice for it.

        Raises:
            Over: the episode is over.
        """
        with self._lock:
            if self._over is not None:
                raise Over(self._over)
            if again and self._last is not None and self._last.question == question:
                return self._last.answer
            asked = self._last = Asked(question)
            self._open.add(asked)
        self._put(asked)
        return asked.answer

    def answer(self, asked: Asked, message: Message) -> None:
        with self._lock:
            self._open.discard(asked)
        _set(asked.answer, message)

    def end(self, result: Any) -> None:
        """The agent has returned ``result``."""
        self._put(Ended(result))

    def fail(self, why: str) -> None:
        """The agent has failed."""
        self._put(Broken(why))

    def close(self, why: str) -> None:
        """Tell whoever asks, now or later, that the episode is over."""
        with self._lock:
            self._over = self._over or why
            waiting, self._open = self._open, set()
        for asked in waiting:
            with suppress(InvalidStateError):
                asked.answer.set_exception(Over(why))

    async def next(self) -> Event:
        """What the agent does next.

        Raises:
            EnvError: two wait at once.
        """
        with self._lock:
            if self._events:
                return self._events.popleft()
            if self._waiter is not None and not self._waiter.done():
                raise EnvError("an episode is stepped twice at once")
            waiter = self._waiter = Future()
        return await asyncio.wrap_future(waiter)

    def _put(self, event: Event) -> None:
        with self._lock:
            waiter, self._waiter = self._waiter, None
            if waiter is None or not _set(waiter, event):
                self._events.append(event)


def _set(future: Future[Any], value: Any) -> bool:
    """Give a future its value; False if nobody waits for it any more."""
    try:
        future.set_result(value)
    except InvalidStateError:
        return False
    return True
