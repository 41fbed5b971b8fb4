"""A conversation written down as ids, for endpoints that take messages: the two ways of it.

Each message is one line of JSON, each id three of its bytes: about a token of English text, so that
budgets in tokens mean about what they say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from agentrl.core.message import Message, ToolCall, ToolSpec

__all__ = ["END", "text_ids", "text_of", "write_messages", "write_tools", "written_from"]

END = 2**24  # ends an answer; all others are below
_BYTES = 3


def write_messages(messages: Sequence[Message]) -> list[int]:
    return _lines(map(_data, messages))


def write_tools(tools: Sequence[ToolSpec]) -> list[int]:
    return _lines([{"tools": [_tool(one) for one in tools]}]) if tools else []


def written_from(
    token_ids: Sequence[int],
) -> tuple[tuple[Message, ...], tuple[ToolSpec, ...]]:
    """Messages and tools, from the ids of a whole prompt.

    Raises:
        ValueError, KeyError, TypeError: they are none of this renderer's.
    """
    messages: list[Message] = []
    tools: tuple[ToolSpec, ...] = ()
    for line in text_of(token_ids).splitlines():
        data = json.loads(line)
        if "tools" in data:
            tools = tuple(ToolSpec(**one) for one in data["tools"])
            continue
        calls = tuple(ToolCall(**one) for one in data.pop("tool_calls", ()))
        messages.append(Message(**data, tool_calls=calls))
    return tuple(messages), tools


def text_ids(text: str) -> list[int]:
    """Ids of a text alone, to measure it."""
    return _lines([text])


def _lines(written: Any) -> list[int]:
    ids: list[int] = []
    for one in written:
        line = json.dumps(one, separators=(",", ":")).encode()  # ASCII: any text, whole or broken
        line += b" " * (-(len(line) + 1) % _BYTES) + b"\n"
        ids += [int.from_bytes(line[k : k + _BYTES], "big") for k in range(0, len(line), _BYTES)]
    return ids


def text_of(token_ids: Sequence[int]) -> str:
    """The lines of JSON."""
    known = (one for one in token_ids if 0 <= one < END)
    return b"".join(one.to_bytes(_BYTES, "big") for one in known).decode("ascii", "replace")


def _data(message: Message) -> Mapping[str, Any]:
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        data["reasoning"] = message.reasoning
    if message.tool_calls:
        data["tool_calls"] = [asdict(one) for one in message.tool_calls]
    if message.tool_call_id is not None:
        data["tool_call_id"] = message.tool_call_id
    return data


def _tool(tool: ToolSpec) -> Mapping[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "read_only": tool.read_only,
    }
