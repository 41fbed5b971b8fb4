"""The wire format of chat completions: requests to our records, answers to theirs.

Pure. What a request asks for that is not done here is refused aloud, because a silent difference
would be trained on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.core.errors import DataError
from agentrl.core.message import ROLES, Message, ToolCall, ToolSpec

__all__ = ["Question", "completion", "completion_chunks", "question", "same_conversation"]

# Asked for by many clients as a matter of course, with the value that changes nothing.
_HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tool_choice": ("auto",),
    "parallel_tool_calls": (True,),
    "logit_bias": ({},),
    "stop": ([], ""),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "response_format": ({"type": "text"},),
    "functions": ([],),
    "function_call": ("auto", "none"),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
}


@dataclass(frozen=True, slots=True)
class Question:
    """One request for a completion.

    Attributes:
        messages: The whole conversation as the agent told it.
        tools: On offer in this request.
        model: As asked for; whatever it says, the policy answers.
        stream: The answer is to come as server-sent events.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    model: str = ""
    stream: bool = False


def question(body: Any) -> Question:
    """Read the JSON body of a request.

    Temperature, top_p, seeds and token limits are taken note of by nobody: how the policy samples
    is said in the run file alone, or what is trained on would not be what was sampled.

    Raises:
        DataError: it is no such request, or asks for what this endpoint does not do.
    """
    if not isinstance(body, Mapping):
        raise DataError(f"the body must be a JSON object, got {_short(body)}")
    for name, harmless in _HARMLESS.items():
        value = body.get(name)
        if value is not None and value not in harmless:
            raise DataError(
                f"{name}={_short(value)} is not offered by this endpoint: leave it out"
                + (f" or set it to {_short(harmless[0])}" if harmless else "")
            )
    messages = body.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise DataError(f"messages must be a list of at least one message, got {_short(messages)}")
    read = tuple(_message(one, place) for place, one in enumerate(messages))
    if read[-1].role == "assistant":
        raise DataError("the last message is the assistant's: there is nothing to answer")
    return Question(
        read,
        tuple(_tool(one, place) for place, one in enumerate(_list(body, "tools", "tools"))),
        model=str(body.get("model", "")).encode("utf-8", "replace").decode(),
        stream=bool(body.get("stream")),
    )


def same_conversation(held: Sequence[Message], told: Sequence[Message]) -> bool:
    """Whether ``told`` begins with ``held``, white space around texts and thinking left aside.

    An agent sends back what it was answered. It may strip it, and seldom sends the thinking back:
    the tokens that were sampled are held here, so neither makes another conversation of it.
    """
    return len(told) >= len(held) and all(
        _essence(one) == _essence(other) for one, other in zip(held, told, strict=False)
    )


def completion(answer: Message, *, id: str, model: str) -> dict[str, Any]:
    """The body of the answer to a request."""
    choice = {
        "index": 0,
        "message": _answer(answer),
        "finish_reason": _finish(answer),
        "logprobs": None,
    }
    return {
        "id": id,
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [choice],
    }


def completion_chunks(answer: Message, *, id: str, model: str) -> list[dict[str, Any]]:
    """The answer as a stream: it was sampled whole, so it comes in one piece."""
    delta = _answer(answer)
    for place, call in enumerate(delta.get("tool_calls", ())):
        call["index"] = place

    head = {"id": id, "object": "chat.completion.chunk", "created": 0, "model": model}
    said = {"index": 0, "delta": delta, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": _finish(answer)}
    return [{**head, "choices": [said]}, {**head, "choices": [end]}]


def _answer(answer: Message) -> dict[str, Any]:
    calls = [one for one in answer.tool_calls if one.problem is None]
    data: dict[str, Any] = {"role": "assistant", "content": answer.content}
    if answer.reasoning is not None:
        data["reasoning_content"] = answer.reasoning
    if calls:
        data["content"] = answer.content or None
        data["tool_calls"] = [
            {
                "id": one.id,
                "type": "function",
                "function": {
                    "name": one.name,
                    "arguments": json.dumps(dict(one.arguments), ensure_ascii=False),
                },
            }
            for one in calls
        ]
    return data


def _finish(answer: Message) -> str:
    if any(one.problem is not None for one in answer.tool_calls):
        return "length"  # see agents.tool_calls.read_chat
    return "tool_calls" if answer.tool_calls else "stop"


def _essence(message: Message) -> tuple[Any, ...]:
    calls = tuple(
        (one.id, one.name, json.dumps(dict(one.arguments), sort_keys=True))
        for one in message.tool_calls
        if one.problem is None
    )
    return message.role, message.content.strip(), calls, message.tool_call_id


def _message(data: Any, place: int) -> Message:
    where = f"messages[{place}]"
    if not isinstance(data, Mapping):
        raise DataError(f"{where} must be an object, got {_short(data)}")
    role = data.get("role")
    role = "system" if role == "developer" else role
    if role not in ROLES:
        raise DataError(f"{where}.role must be one of {', '.join(ROLES)}, got {_short(role)}")
    told_by = data.get("tool_call_id")
    if role == "tool" and not isinstance(told_by, str):
        raise DataError(f"{where}.tool_call_id must name the call that is answered")
    calls = _list(data, "tool_calls", f"{where}.tool_calls")
    if calls and role != "assistant":
        raise DataError(f"{where} calls tools, which only the assistant does")
    return Message(
        role,
        _content(data.get("content"), where),
        tool_calls=tuple(_call(one, f"{where}.tool_calls[{k}]") for k, one in enumerate(calls)),
        tool_call_id=told_by if role == "tool" else None,
    )


def _list(data: Mapping[str, Any], name: str, where: str) -> Sequence[Any]:
    """A list that may be left out."""
    value = data.get(name)
    if value is not None and not isinstance(value, list):
        raise DataError(f"{where} must be a list, got {_short(value)}")
    return value or ()


def _content(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise DataError(f"{where}.content must be text or a list of parts, got {_short(content)}")
    parts = []
    for part in content:
        if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, Mapping) else part
            raise DataError(f"{where}.content holds {_short(kind)}; the policy reads text only")
        parts.append(part["text"])
    return "".join(parts)


def _call(data: Any, where: str) -> ToolCall:
    made = data.get("function") if isinstance(data, Mapping) else None
    if not isinstance(made, Mapping) or not isinstance(made.get("name"), str):
        raise DataError(f"{where} must be {{id, type: function, function: {{name, arguments}}}}")
    arguments = made.get("arguments") or "{}"
    try:
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):  # no JSON, or none that can be read
        arguments = None
    if not isinstance(arguments, Mapping):
        raise DataError(
            f"{where}.function.arguments must be a JSON object as text, got "
            f"{_short(made.get('arguments'))}"
        )
    return ToolCall(str(data.get("id", "")), made["name"], dict(arguments))


def _tool(data: Any, place: int) -> ToolSpec:
    made = data.get("function") if isinstance(data, Mapping) else None
    if not isinstance(made, Mapping) or not isinstance(made.get("name"), str):
        raise DataError(
            f"tools[{place}] must be {{type: function, function: {{name, description, "
            f"parameters}}}}, got {_short(data)}"
        )
    parameters = made.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping):
        raise DataError(f"tools[{place}].function.parameters must be a JSON schema")
    return ToolSpec(made["name"], str(made.get("description") or ""), dict(parameters))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
