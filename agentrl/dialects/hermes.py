"""Hermes, Qwen 2.5, Qwen 3 and relatives: a JSON object between tags.

<tool_call>
{"name": "search", "arguments": {"query": "cat"}}
</tool_call>
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentrl.core.message import Message, ToolSpec
from agentrl.dialects.calls import call_of, close, sayable_calls
from agentrl.dialects.reading import Dialect, Reading
from agentrl.dialects.strict_json import decode, encode, skip_blank
from agentrl.dialects.thinking import Found, markers, scan

__all__ = ["HERMES"]

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_MARKERS = markers(_OPEN)


def _read(text: str, tools: Sequence[ToolSpec]) -> Reading:
    return scan(text, _MARKERS, _call)


def _call(text: str, found: re.Match[str]) -> Found:
    value, end = decode(text, skip_blank(text, found.end()))
    return Found(close(text, end, _CLOSE), [call_of(value)])


def _write(message: Message) -> str:
    calls = [
        f"{_OPEN}\n{encode({'name': one.name, 'arguments': dict(one.arguments)})}\n{_CLOSE}"
        for one in sayable_calls(message, "hermes")
    ]
    return "\n".join([message.content, *calls] if message.content else calls)


HERMES = Dialect(
    "hermes",
    f'{_OPEN}{{"name": "TOOL", "arguments": {{...}}}}{_CLOSE}',
    _read,
    _write,
)
