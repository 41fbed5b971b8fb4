r"""The JSON of OpenAI-compatible interfaces, said as text: the whole answer is a message object.

    {"content": null, "tool_calls": [{"id": "a", "type": "function",
     "function": {"name": "search", "arguments": "{\"query\": \"cat\"}"}}]}

The list of calls alone, and one call alone, are read as well. ``arguments`` is a string that holds
JSON, or an object. As in every dialect without marks a call must be all that is said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.dialects.calls import call_of, problem_call, sayable_calls
from agentrl.dialects.reading import Dialect, Reading
from agentrl.dialects.strict_json import Unreadable, decode, describe, encode
from agentrl.dialects.thinking import Found, markers, scan

__all__ = ["OPENAI", "message_call"]

_THINKING = markers()
_MARKERS = markers(r"[\[{]")
_BEGINS_A_CALL = re.compile(r'\{\s*"(?:tool_calls|role|function)"|\[\s*\{\s*"(?:id|type|function)"')


def message_call(value: Any) -> ToolCall:
    """The call in ``{"id": ..., "type": "function", "function": {"name": ..., ...}}``."""
    if not isinstance(value, Mapping) or not isinstance(value.get("function"), Mapping):
        return problem_call(f"a call must be an object with a 'function', got {describe(value)}")
    function, call_id = value["function"], value.get("id")
    if value.get("type", "function") != "function":
        return problem_call(f"the type of a call must be 'function', got {describe(value['type'])}")
    own = {} if call_id is None else {"id": call_id}
    return call_of({**function, **own}, text_arguments=True)


def _read(text: str, tools: Sequence[ToolSpec]) -> Reading:
    return scan(text, _MARKERS, _call, later=_THINKING)


def _call(text: str, found: re.Match[str]) -> Found:
    start = found.start()
    try:
        value, end = decode(text, start)
    except Unreadable:
        if _BEGINS_A_CALL.match(text, start):
            raise
        return Found(found.end(), (), found[0])
    content = ""
    calls = [value] if _like_a_call(value) else value
    if isinstance(value, Mapping) and "tool_calls" in value:
        content, calls = value.get("content") or "", value["tool_calls"] or []
        if not isinstance(content, str) or not isinstance(calls, list):
            what = f"content {describe(content)} and tool_calls {describe(calls)}"
            raise Unreadable(f"expected text as content and a list as tool_calls, got {what}")
        return Found(end, [message_call(one) for one in calls], content)
    if not isinstance(calls, list) or not any(_like_a_call(one) for one in calls):
        return Found(end, (), text[start:end])
    return Found(end, [message_call(one) for one in calls])


def _like_a_call(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("function"), Mapping)


def _write(message: Message) -> str:
    calls = [
        {
            "id": one.id,
            "type": "function",
            "function": {"name": one.name, "arguments": encode(dict(one.arguments))},
        }
        for one in sayable_calls(message, "openai")
    ]
    if not calls:
        return message.content
    return encode({"content": message.content or None, "tool_calls": calls})


OPENAI = Dialect(
    "openai",
    '{"tool_calls": [{"type": "function", "function": {"name": "TOOL", "arguments": "{...}"}}]}',
    _read,
    _write,
)
