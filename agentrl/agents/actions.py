"""What a policy said, to what an environment gets. Pure; never raises on what it is given.

Four formats. ``bare``: the whole answer is the command. ``tagged``: the command stands in
``<action>...</action>``, after thinking in ``<think>...</think>`` that nobody executes. ``tools``:
the answer calls tools in the dialect of its model, see ``tool_calls.py``. ``chat``: the answer is
the message, as a server of chat completions gives it: what it means is for whoever asked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from agentrl.agents.tool_calls import failed_call, read_calls, read_chat
from agentrl.core.message import Message, ParseFailure, ToolSpec
from agentrl.dialects.action import ACTION_CLOSE, ACTION_OPEN
from agentrl.dialects.reading import Dialect
from agentrl.dialects.thinking import THINK_CLOSE, THINK_OPEN, split_thinking
from agentrl.dialects.writing import format_call

__all__ = [
    "ACTION_CLOSE",
    "ACTION_OPEN",
    "ActionFormat",
    "action_key",
    "format_action",
    "parse_action",
    "read_action",
    "write_action",
]

ActionFormat = Literal["bare", "tagged", "tools", "chat"]


def read_action(
    answer: Message | ParseFailure,
    action_format: ActionFormat,
    dialect: Dialect,
    tools: Sequence[ToolSpec] = (),
    *,
    truncated: bool = False,
) -> tuple[Message, Message, str]:
    """What was said, the message for the environment, and the parse status.

    Without an action the environment gets the empty command; where it has tools, a call that
    cannot be run and says why.

    Args:
        answer: From the renderer.
        action_format: How actions stand in answers.
        dialect: How calls do, for ``tools``.
        tools: On offer in the environment.
        truncated: The answer was cut by its length limit.
    """
    said = _as_said(answer) if isinstance(answer, ParseFailure) else answer
    if action_format == "chat":
        return said, *read_chat(answer, dialect, tools, truncated=truncated)
    if action_format == "tools":
        if isinstance(answer, ParseFailure):
            return said, failed_call(answer, dialect), answer.kind
        return said, *read_calls(answer, dialect, tools, truncated=truncated)
    action = answer
    if not isinstance(action, ParseFailure):
        action = parse_action(action, action_format, truncated=truncated)
    if isinstance(action, ParseFailure):
        return said, Message("assistant", ""), action.kind
    return said, action, "ok"


def write_action(
    action: Message,
    action_format: ActionFormat,
    dialect: Dialect,
    tools: Sequence[ToolSpec] = (),
) -> Message:
    """The assistant message that says ``action``; ``read_action`` reads it back.

    Raises:
        DataError: the dialect cannot say it.
    """
    if action_format == "tools" or (action_format == "chat" and action.tool_calls):
        content = format_call(dialect, action, tools)
        return Message("assistant", content, reasoning=action.reasoning)
    if action_format == "chat":
        return action
    return format_action(action.content, action_format, reasoning=action.reasoning)


def action_key(action: Message) -> str:
    """The executed action, normalised: the same key = the same action.

    Calls: each tool's name and its arguments as JSON with sorted keys, in call order; those with a
    problem were not executed. Without calls: the text with white space made equal.
    """
    if not action.tool_calls:
        return " ".join(action.content.split())
    made = [call for call in action.tool_calls if call.problem is None]
    return "\n".join(
        f"{call.name} {json.dumps(dict(call.arguments), sort_keys=True, separators=(',', ':'))}"
        for call in made
    )


def parse_action(
    message: Message, action_format: ActionFormat, *, truncated: bool = False
) -> Message | ParseFailure:
    """The command in an assistant message.

    Args:
        message: What the renderer made of the sampled ids; its reasoning may already be apart.
        action_format: ``bare`` or ``tagged``; the others are for ``tool_calls.py``. Tagged: the
            last complete ``<action>`` counts; one inside ``<think>`` is never executed.
        truncated: The answer was cut by its length limit. Then it is never executed, whatever it
            holds, and never repaired.

    Returns:
        The message with the bare command, stripped, as content and all thinking as reasoning; or
        a ParseFailure of kind ``truncated``, ``unclosed_think``, ``unclosed_action``,
        ``no_action`` or ``empty_action``.
    """
    if truncated:
        return _failure("truncated", "the answer hit its length limit", message)
    if action_format == "bare":
        command = message.content.strip()
        if not command:
            return _failure("empty_action", "expected a command, got an empty answer", message)
        return replace(message, content=command)
    thoughts, spoken, closed = split_thinking(message.content)
    if not closed:
        return _failure("unclosed_think", f"{THINK_OPEN} is never closed", message)
    found = next((one for one in map(_last_action, reversed(spoken)) if one is not None), None)
    if found is None:
        opened = any(ACTION_OPEN in one for one in spoken)
        what = f"{ACTION_OPEN} without {ACTION_CLOSE} after it" if opened else "none"
        kind = "unclosed_action" if opened else "no_action"
        return _failure(kind, f"expected {ACTION_OPEN}command{ACTION_CLOSE}, got {what}", message)
    if not found.strip():
        return _failure("empty_action", f"nothing stands in {ACTION_OPEN}{ACTION_CLOSE}", message)
    if message.reasoning is not None:
        thoughts.insert(0, message.reasoning)
    reasoning = "\n".join(thoughts) if thoughts else None
    return replace(message, content=found.strip(), reasoning=reasoning)


def format_action(
    command: str, action_format: ActionFormat, *, reasoning: str | None = None
) -> Message:
    """The assistant message that says ``command``; ``parse_action`` reads it back.

    For demonstrations and scripted policies.
    """
    tagged = action_format == "tagged"
    content = f"{ACTION_OPEN}{command}{ACTION_CLOSE}" if tagged else command
    return Message("assistant", content, reasoning=reasoning)


def _as_said(failure: ParseFailure) -> Message:
    """What a failed answer said. An open thought is kept as one: rendered anew, it is closed."""
    text = failure.content.lstrip()
    opened = text.startswith(THINK_OPEN)
    if failure.kind == "unclosed_think" or (opened and THINK_CLOSE not in text):
        return Message("assistant", "", reasoning=text.removeprefix(THINK_OPEN).strip())
    return Message("assistant", failure.content)


def _last_action(text: str) -> str | None:
    """The text of the last ``<action>`` that is closed, up to its own closing."""
    start = text.rfind(ACTION_OPEN, 0, max(text.rfind(ACTION_CLOSE), 0))
    if start < 0:
        return None
    return text[start + len(ACTION_OPEN) :].partition(ACTION_CLOSE)[0]


def _failure(kind: str, what: str, message: Message) -> ParseFailure:
    return ParseFailure(kind, f"{what}; nothing was executed", message.content)
