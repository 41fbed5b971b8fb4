"""Who is cloned: it knows what to search for; ``noise`` makes it wander and guess."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator

from agentrl.core.message import Message, ToolCall
from agentrl.core.task import Task
from agentrl.envs.search.commands import as_command
from agentrl.envs.search.library import Library

__all__ = ["search_expert"]

#: Share of the random commands that are answers: the episode is then over.
GUESSES = 0.25


def search_expert(
    library: Library, *, noise: float, wandered: list[bool], commands: bool
) -> Callable[[Task, random.Random], Generator[Message, str, None]]:
    """An expert as ``agentrl.envs.tools.expert`` wants it.

    It searches for the task's ``searches`` in order and gives the first accepted answer. A share
    ``noise`` of its commands is random instead: a search for, or an answer with, a title of the
    corpus that stands in what was shown so far (or one of the task's searches).

    Args:
        library: The corpus. noise: in [0, 1).
        wandered: Is told for each command whether it was random.
        commands: Say commands in place of tool calls.
    """

    def say(call: ToolCall) -> Message:
        if commands:
            return Message("assistant", as_command(call))
        return Message("assistant", "", tool_calls=(call,))

    def play(task: Task, rng: random.Random) -> Generator[Message, str, None]:
        searches = list(task.payload["searches"])
        names = dict.fromkeys([*library.titles_in(task.payload["question"]), searches[0]])
        while True:
            wandered.append(rng.random() < noise)
            if wandered[-1]:
                name = rng.choice(list(names))
                guess = rng.random() < GUESSES
                call = _finish(name) if guess else _search(name)
            elif searches:
                call = _search(searches.pop(0))
            else:
                call = _finish(task.payload["answers"][0])
            shown = yield say(call)
            names.update(dict.fromkeys(library.titles_in(shown)))

    return play


def _search(query: str) -> ToolCall:
    return ToolCall("call_0", "search", {"query": query})


def _finish(answer: str) -> ToolCall:
    return ToolCall("call_0", "finish", {"answer": answer})
