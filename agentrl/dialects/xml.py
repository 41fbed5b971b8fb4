"""Qwen3-Coder, Qwen 3.5 and later, Nemotron 3: a tag for the tool and one for each parameter.

    <tool_call>
    <function=search>
    <parameter=query>
    cat
    </parameter>
    </function>
    </tool_call>

The outer tag may be missing. One line break after a parameter's opening and one before its closing
belong to the tags. A value ends at the first ``</parameter>``; types come from the tool's schema.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.dialects.calls import close, refuse, sayable_calls, sayable_name
from agentrl.dialects.reading import Dialect, Reading
from agentrl.dialects.strict_json import Unreadable, encode, skip_blank
from agentrl.dialects.thinking import Found, markers, scan
from agentrl.dialects.untyped import typed_arguments

__all__ = ["XML", "value_text"]

_OUTER, _OUTER_CLOSE = "<tool_call>", "</tool_call>"
_FUNCTION, _FUNCTION_CLOSE = "<function=", "</function>"
_PARAMETER, _PARAMETER_CLOSE = "<parameter=", "</parameter>"
_MARKERS = markers(_OUTER, _FUNCTION)
_NAME = re.compile(r"[^\s<>=]+")


def value_text(value: object, closing: str, dialect: str) -> str:
    """An argument as bare text: strings as they are, all else as JSON.

    Raises:
        DataError: the text would end the value early.
    """
    text = value if isinstance(value, str) else encode(value)
    if closing in text:
        raise refuse(dialect, f"a value holds {closing!r}, which ends it")
    return text


def _read(text: str, tools: Sequence[ToolSpec]) -> Reading:
    def call(text: str, found: re.Match[str]) -> Found:
        return _call(text, found, tools)

    return scan(text, _MARKERS, call)


def _call(text: str, found: re.Match[str], tools: Sequence[ToolSpec]) -> Found:
    outer, start = found[0] == _OUTER, found.start()
    if outer:
        start = close(text, found.end(), _FUNCTION) - len(_FUNCTION)
    name, position = _tag(text, start, _FUNCTION)
    arguments: dict[str, str] = {}
    while text.startswith(_PARAMETER, here := skip_blank(text, position)):
        key, begin = _tag(text, here, _PARAMETER)
        end = text.find(_PARAMETER_CLOSE, begin)
        if end < 0:
            raise Unreadable(f"the parameter '{key[:60]}' is never closed with {_PARAMETER_CLOSE}")
        if key in arguments:
            raise Unreadable(f"the parameter '{key[:60]}' is given twice")
        arguments[key] = _value(text, begin, end)
        position = end + len(_PARAMETER_CLOSE)
    position = close(text, position, _FUNCTION_CLOSE)
    if outer:
        position = close(text, position, _OUTER_CLOSE)
    return Found(position, [ToolCall("", name, typed_arguments(name, arguments, tools))])


def _tag(text: str, start: int, opening: str) -> tuple[str, int]:
    """The name in ``<opening=name>`` at ``start``, and the position after it."""
    name = _NAME.match(text, start + len(opening))
    if name is None or not text.startswith(">", name.end()):
        got = text[start : start + len(opening) + 24]
        raise Unreadable(f"expected {opening}NAME>, got {got!r}")
    return name[0], name.end() + 1


def _value(text: str, begin: int, end: int) -> str:
    begin += text.startswith("\n", begin, end)
    end -= end > begin and text[end - 1] == "\n"
    return text[begin:end]


def _write(message: Message) -> str:
    calls = [_written(call) for call in sayable_calls(message, "xml")]
    return "\n".join([message.content, *calls] if message.content else calls)


def _written(call: ToolCall) -> str:
    lines = [_OUTER, f"{_FUNCTION}{sayable_name(call.name, _NAME, 'xml')}>"]
    for key, value in call.arguments.items():
        text = value_text(value, _PARAMETER_CLOSE, "xml")
        lines += [f"{_PARAMETER}{sayable_name(key, _NAME, 'xml')}>", text, _PARAMETER_CLOSE]
    return "\n".join([*lines, _FUNCTION_CLOSE, _OUTER_CLOSE])


XML = Dialect(
    "xml",
    f"{_OUTER}{_FUNCTION}TOOL>{_PARAMETER}NAME>value{_PARAMETER_CLOSE}{_FUNCTION_CLOSE}"
    f"{_OUTER_CLOSE}",
    _read,
    _write,
    untyped=True,
)
