"""The same episode for policies that write commands in place of tool calls.

``search WORDS`` and ``finish ANSWER``, one a message; the answers come as messages of the user.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.core.trajectory import Observation, StepResult
from agentrl.envs.tools import ToolEnv

__all__ = ["COMMANDS", "CommandEnv", "as_call", "as_command"]

#: Commands, each a tool, and the parameter that the rest of the command is.
COMMANDS = {"search": "query", "finish": "answer"}
EXPECTED = "say 'search WORDS' or 'finish ANSWER'"


class CommandEnv:
    """One episode of a ``ToolEnv`` in commands."""

    tools: Sequence[ToolSpec] = ()

    def __init__(self, env: ToolEnv) -> None:
        self._env = env

    async def reset(self) -> Observation:
        return _said_by_the_user(await self._env.reset())

    async def step(self, action: Message) -> StepResult:
        result = await self._env.step(replace(action, tool_calls=(as_call(action.content),)))
        return replace(result, observation=_said_by_the_user(result.observation))

    async def aclose(self) -> None:
        await self._env.aclose()


def as_call(command: str) -> ToolCall:
    """The call that a command means; one that cannot be run, with the reason, if it means none."""
    verb, _, rest = command.strip().partition(" ")
    parameter = COMMANDS.get(verb.lower())
    if parameter is None or not rest.strip():
        return ToolCall("", "", {}, EXPECTED)
    return ToolCall("", verb.lower(), {parameter: rest.strip()})


def as_command(call: ToolCall) -> str:
    """The command that means ``call``."""
    return f"{call.name} {call.arguments[COMMANDS[call.name]]}"


def _said_by_the_user(observation: Observation) -> Observation:
    messages = tuple(Message("user", one.content) for one in observation.messages)
    return replace(observation, messages=messages)
