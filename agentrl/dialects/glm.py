"""GLM 4.5 and later: the tool's name, then a tag for each key and each value.

    <tool_call>search
    <arg_key>query</arg_key>
    <arg_value>cat</arg_value>
    </tool_call>

A value ends at the first ``</arg_value>``; types come from the tool's schema.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.dialects.calls import close, sayable_calls, sayable_name
from agentrl.dialects.reading import Dialect, Reading
from agentrl.dialects.strict_json import Unreadable, skip_blank
from agentrl.dialects.thinking import Found, markers, scan
from agentrl.dialects.untyped import typed_arguments
from agentrl.dialects.xml import value_text

__all__ = ["GLM"]

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_KEY, _KEY_CLOSE = "<arg_key>", "</arg_key>"
_VALUE, _VALUE_CLOSE = "<arg_value>", "</arg_value>"
_MARKERS = markers(_OPEN)
_NAME = re.compile(r"[^\s<>{}\"]+")


def _read(text: str, tools: Sequence[ToolSpec]) -> Reading:
    def call(text: str, found: re.Match[str]) -> Found:
        return _call(text, found, tools)

    return scan(text, _MARKERS, call)


def _call(text: str, found: re.Match[str], tools: Sequence[ToolSpec]) -> Found:
    name = _NAME.match(text, skip_blank(text, found.end()))
    if name is None:
        got = text[found.end() : found.end() + 24]
        raise Unreadable(f"expected the name of a tool after {_OPEN}, got {got!r}")
    position = name.end()
    arguments: dict[str, str] = {}
    while text.startswith(_KEY, here := skip_blank(text, position)):
        key, position = _between(text, here + len(_KEY), _KEY_CLOSE)
        begin = close(text, position, _VALUE)
        value, position = _between(text, begin, _VALUE_CLOSE)
        if key.strip() in arguments:
            raise Unreadable(f"the key '{key.strip()[:60]}' is given twice")
        arguments[key.strip()] = value
    position = close(text, position, _CLOSE)
    return Found(position, [ToolCall("", name[0], typed_arguments(name[0], arguments, tools))])


def _between(text: str, begin: int, closing: str) -> tuple[str, int]:
    end = text.find(closing, begin)
    if end < 0:
        raise Unreadable(f"{closing} is missing after {text[begin : begin + 24]!r}")
    return text[begin:end], end + len(closing)


def _write(message: Message) -> str:
    calls = [_written(call) for call in sayable_calls(message, "glm")]
    return "\n".join([message.content, *calls] if message.content else calls)


def _written(call: ToolCall) -> str:
    lines = [f"{_OPEN}{sayable_name(call.name, _NAME, 'glm')}"]
    for key, value in call.arguments.items():
        text = value_text(value, _VALUE_CLOSE, "glm")
        lines += [f"{_KEY}{sayable_name(key, _NAME, 'glm')}{_KEY_CLOSE}"]
        lines += [f"{_VALUE}{text}{_VALUE_CLOSE}"]
    return "\n".join([*lines, _CLOSE])


GLM = Dialect(
    "glm",
    f"{_OPEN}TOOL{_KEY}NAME{_KEY_CLOSE}{_VALUE}value{_VALUE_CLOSE}{_CLOSE}",
    _read,
    _write,
    untyped=True,
)
