"""Mistral, old and new.

    [TOOL_CALLS][{"name": "search", "arguments": {"query": "cat"}, "id": "9kZ1aB3cD"}]
    [TOOL_CALLS]search[ARGS]{"query": "cat"}

In the new form every call has its own mark; ``[CALL_ID]id`` may stand before ``[ARGS]``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.dialects.calls import arguments_of, call_of, sayable_calls
from agentrl.dialects.reading import Dialect, Reading
from agentrl.dialects.strict_json import Unreadable, decode, describe, encode, skip_blank
from agentrl.dialects.thinking import Found, markers, scan

__all__ = ["MISTRAL", "MISTRAL_ARGS"]

_OPEN, _ID, _ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_MARKERS = markers(re.escape(_OPEN))
_NAME = r"\s*([^\s\[\]{}]+)\s*"
_HEAD = re.compile(rf"{_NAME}(?:{re.escape(_ID)}{_NAME})?{re.escape(_ARGS)}")


def _read(text: str, tools: Sequence[ToolSpec]) -> Reading:
    return scan(text, _MARKERS, _call)


def _call(text: str, found: re.Match[str]) -> Found:
    start = skip_blank(text, found.end())
    head = _HEAD.match(text, start)
    if head is not None:
        arguments, end = decode(text, skip_blank(text, head.end()))
        return Found(end, [arguments_of(head[2] or "", head[1], arguments)])
    if not text.startswith("[", start):
        got = text[start : start + 24]
        raise Unreadable(f"expected a JSON list, or a name and {_ARGS}, after {_OPEN}, got {got!r}")
    values, end = decode(text, start)
    if not values:
        raise Unreadable(f"expected at least one call after {_OPEN}, got {describe(values)}")
    return Found(end, [call_of(one) for one in values])


def _write(message: Message) -> str:
    calls = sayable_calls(message, "mistral")
    if not calls:
        return message.content
    values = [{"name": one.name, "arguments": dict(one.arguments), "id": one.id} for one in calls]
    return f"{message.content}{_OPEN}{encode(values)}"


def _write_args(message: Message) -> str:
    calls: list[ToolCall] = list(sayable_calls(message, "mistral_args"))
    texts = [f"{_OPEN}{one.name}{_ARGS}{encode(dict(one.arguments))}" for one in calls]
    return "".join([message.content, *texts])


MISTRAL = Dialect("mistral", f'{_OPEN}[{{"name": "TOOL", "arguments": {{...}}}}]', _read, _write)
MISTRAL_ARGS = Dialect("mistral_args", f"{_OPEN}TOOL{_ARGS}{{...}}", _read, _write_args)
