"""Our messages as chat completions want them, and their answers as ours. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any

from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.dialects.calls import arguments_of, problem_call

__all__ = ["answer_from", "conversation_data", "fitted", "tool_data"]


def conversation_data(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages of a request. Thinking is not sent: endpoints refuse or ignore it.

    Endpoints refuse a whole conversation in which a call has no result or a result no call. Both
    happen: of an answer that was cut or could not be read the model is told in a tool message. Such
    a result is sent as the user's word, such a call is left out.
    """
    data = []
    called: Collection[str] = ()
    for place, message in enumerate(messages):
        if message.role == "tool" and message.tool_call_id not in called:
            message = Message("user", message.content)
        elif message.role == "assistant":
            after = takewhile(lambda one: one.role == "tool", messages[place + 1 :])
            answered = {one.tool_call_id for one in after}
            calls = [one for one in message.tool_calls if one.name and one.id in answered]
            called = {one.id for one in calls}
            data.append(_message_data(message, calls))
            continue
        data.append(_message_data(message, ()))
    return data


def fitted(request: Mapping[str, Any], refused: Collection[str]) -> dict[str, Any]:
    """``request`` without the fields that the model ``refused``, where that changes nothing.

    Models that reason take the limit of tokens by another name, and no ``temperature`` or
    ``top_p``, not even the 1 that they have anyway.
    """
    data = dict(request)
    if "max_tokens" in refused and "max_tokens" in data:
        data.setdefault("max_completion_tokens", data.pop("max_tokens"))
    for name in ("temperature", "top_p"):
        if name in refused and data.get(name) == 1:
            del data[name]
    return data


def _message_data(message: Message, calls: Sequence[ToolCall]) -> dict[str, Any]:
    data: dict[str, Any] = {"role": message.role, "content": message.content}
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
    function, call_id = data["function"], str(data.get("id") or f"call_{place}")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        return problem_call(f"the call must name a tool, got {name!r:.60}", "", call_id)
    arguments = function.get("arguments")
    given = "" if arguments is None else arguments
    return arguments_of(call_id, name, given, text_arguments=True)


def _text(arguments: Mapping[str, Any]) -> str:
    return json.dumps(dict(arguments), ensure_ascii=False)
