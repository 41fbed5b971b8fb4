"""``<action>`` tags: the tool's name and its arguments as JSON; the shortest form, for tiny models.

    <action>search {"query": "cat"}</action>

A name alone is a call without arguments; ``{"name": ..., "arguments": {...}}`` is read as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.dialects.calls import arguments_of, call_of, close, sayable_calls, sayable_name
from agentrl.dialects.reading import Dialect, Reading
from agentrl.dialects.strict_json import Unreadable, decode, encode, skip_blank
from agentrl.dialects.thinking import Found, markers, scan

__all__ = ["ACTION", "ACTION_CLOSE", "ACTION_OPEN"]

ACTION_OPEN, ACTION_CLOSE = "<action>", "</action>"
_MARKERS = markers(ACTION_OPEN)
_NAME = re.compile(r"[^\s<>{}\"]+")


def _read(text: str, tools: Sequence[ToolSpec]) -> Reading:
    return scan(text, _MARKERS, _call)


def _call(text: str, found: re.Match[str]) -> Found:
    start = skip_blank(text, found.end())
    if text.startswith("{", start):
        value, end = decode(text, start)
        return Found(close(text, end, ACTION_CLOSE), [call_of(value)])
    name = _NAME.match(text, start)
    if name is None:
        got = repr(text[start : start + 24]) if start < len(text) else "the end of the answer"
        raise Unreadable(f"expected the name of a tool after {ACTION_OPEN}, got {got}")
    start = end = skip_blank(text, name.end())
    if text.startswith(ACTION_CLOSE, start):
        return Found(start + len(ACTION_CLOSE), [ToolCall("", name[0], {})])
    arguments, end = decode(text, start)
    return Found(close(text, end, ACTION_CLOSE), [arguments_of("", name[0], arguments)])


def _write(message: Message) -> str:
    calls = [_written(call) for call in sayable_calls(message, "action")]
    return "\n".join([message.content, *calls] if message.content else calls)


def _written(call: ToolCall) -> str:
    name = sayable_name(call.name, _NAME, "action")
    arguments = f" {encode(dict(call.arguments))}" if call.arguments else ""
    return f"{ACTION_OPEN}{name}{arguments}{ACTION_CLOSE}"


ACTION = Dialect("action", f"{ACTION_OPEN}TOOL {{...}}{ACTION_CLOSE}", _read, _write)
