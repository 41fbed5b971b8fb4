"""Our messages as chat completions want them, and their answers as ours. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentrl.core.message import Message, ToolCall, ToolSpec

__all__ = ["answer_from", "message_data", "tool_data"]


def message_data(message: Message) -> dict[str, Any]:
    """One message of a request. Thinking is not sent: endpoints refuse or ignore it."""
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    calls = [one for one in message.tool_calls if one.problem is None or one.name]
    if calls:
        data["content"] = message.content or None
        data["tool_calls"] = [
            {
                "id": one.id,
                "type": "function",
                "function": {"name": one.name, "arguments": _text(one.arguments)},
            }
            for one in calls
        ]
    if message.tool_call_id is not None:
        data["tool_call_id"] = message.tool_call_id
    return data


def tool_data(tool: ToolSpec) -> dict[str, Any]:
    """One tool on offer."""
    parameters = dict(tool.parameters) or {"type": "object", "properties": {}}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def answer_from(data: Mapping[str, Any]) -> Message:
    """The assistant's message of an answer, its calls with a problem where they cannot be read.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: it is no such message.
    """
    content = data.get("content")
    if not isinstance(content, str | None):
        raise TypeError(f"content is a {type(content).__name__}")
    reasoning = data.get("reasoning_content") or data.get("reasoning")
    return Message(
        "assistant",
        content or "",
        reasoning=reasoning if isinstance(reasoning, str) else None,
        tool_calls=tuple(_call(one, k) for k, one in enumerate(data.get("tool_calls") or ())),
    )


def _call(data: Mapping[str, Any], place: int) -> ToolCall:
    function = data["function"]
    name, text = str(function["name"]), function.get("arguments") or "{}"
    call_id = str(data.get("id") or f"call_{place}")
    try:
        arguments = json.loads(text) if isinstance(text, str) else text
    except json.JSONDecodeError as error:
        return ToolCall(call_id, name, {}, f"the arguments {text[:200]!r} are no JSON: {error}")
    if not isinstance(arguments, Mapping):
        return ToolCall(call_id, name, {}, f"the arguments {text[:200]!r} are no JSON object")
    return ToolCall(call_id, name, dict(arguments))


def _text(arguments: Mapping[str, Any]) -> str:
    return json.dumps(dict(arguments), ensure_ascii=False)
