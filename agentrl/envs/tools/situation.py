"""What a scorer and an anchor are shown of an episode, and what a scorer says of it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeVar

from agentrl.core.errors import AgentRLError, ConfigError, EnvError
from agentrl.core.message import Message
from agentrl.core.task import Task, content_hash
from agentrl.tools.dispatch import CallRecord

__all__ = ["Score", "Scorer", "Situation", "StateKey", "judge"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Situation:
    """How an episode stands.

    Attributes:
        task: The problem. seed: of the episode.
        messages: All that was said, the policy's own messages and tool results included.
        calls: All calls so far with their results, those that were not run included.
        answer: What the policy answered at the end: by a tool that ends the episode, or by its
            last text. ``None`` before.
        parts: The objects behind the tools of this episode.
    """

    task: Task
    seed: int
    messages: tuple[Message, ...]
    calls: tuple[CallRecord, ...]
    answer: str | None
    parts: tuple[Any, ...]

    def part(self, kind: type[T]) -> T:
        """The object of class ``kind`` behind the tools.

        Raises:
            ConfigError: there is none.
        """
        for one in self.parts:
            if isinstance(one, kind):
                return one
        made = ", ".join(type(one).__name__ for one in self.parts) or "none"
        raise ConfigError(f"no tool of this environment is a {kind.__name__}; there are: {made}")


@dataclass(frozen=True, slots=True)
class Score:
    """Reward of an episode (``None``: it cannot be scored), and whether its task is solved."""

    reward: float | None
    success: bool


Scorer = Callable[[Situation], Score | float | bool | Awaitable[Score | float | bool]]


async def judge(score: Scorer, situation: Situation, *, success_at: float) -> Score:
    """What ``score`` says: a ``Score``, a bool (reward 1 or 0), or a number (the reward).

    A number is a success from ``success_at`` on.

    Raises:
        EnvError: it raised or returned anything else. Other errors of agentrl pass through.
    """
    name = getattr(score, "__qualname__", type(score).__qualname__)
    try:
        value: Any = score(situation)
        if inspect.isawaitable(value):
            value = await value
    except AgentRLError:
        raise
    except Exception as error:
        raise EnvError(f"the scorer '{name}' raised {type(error).__name__}: {error}") from error
    if isinstance(value, Score):
        return value
    if isinstance(value, Real) and math.isfinite(value):  # a bool is a number
        return Score(float(value), float(value) >= (0.5 if value is True else success_at))
    raise EnvError(
        f"the scorer '{name}' returned {value!r}; expected a finite number, a bool or a Score "
        "(whose reward is None where it cannot be told)"
    )


class StateKey:
    """What was done and learnt so far, as one key: the default anchor.

    Two episodes of a task have the same key if they changed the same things in the same order, with
    the same results, and read the same things in any order. Calls that were not run do not count.
    """

    def __init__(self) -> None:
        self._done = ""
        self._learnt: set[str] = set()

    def called(self, record: CallRecord) -> None:
        if not record.ran:
            return
        fact = [record.call.name, dict(record.call.arguments), record.result.content]
        if record.read_only:
            self._learnt.add(content_hash(fact))
        else:
            self._done = content_hash([self._done, fact])

    def said(self, text: str, reply: str) -> None:
        """The policy said ``text`` and the user answered."""
        self._done = content_hash([self._done, text, reply])

    def value(self) -> str:
        return content_hash([self._done, sorted(self._learnt)])
