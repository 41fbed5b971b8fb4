"""Llama 3: the whole answer is a JSON object, with or without ``<|python_tag|>`` before it.

    {"name": "search", "parameters": {"query": "cat"}}

Several calls are separated by ``;``. There is no closing mark, so a call must be all that is said:
JSON after a sentence, or in a code fence, is text; text after a call makes it a problem. JSON that
names none of the tools and has no arguments is an answer in JSON.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.dialects.calls import call_of, sayable_calls
from agentrl.dialects.reading import Dialect, Reading
from agentrl.dialects.strict_json import Unreadable, decode, encode, skip_blank
from agentrl.dialects.thinking import Found, markers, scan

__all__ = ["LLAMA3"]

_TAG = "<|python_tag|>"
_TAGGED = markers(re.escape(_TAG))
_MARKERS = markers(re.escape(_TAG), r"\{")
_BEGINS_A_CALL = re.compile(r'\{\s*"(?:name|parameters|arguments|type)"')


def _read(text: str, tools: Sequence[ToolSpec]) -> Reading:
    names = {tool.name for tool in tools}

    def call(text: str, found: re.Match[str]) -> Found:
        return _call(text, found, names)

    return scan(text, _MARKERS, call, later=_TAGGED)


def _call(text: str, found: re.Match[str], names: Collection[str]) -> Found:
    tagged = found[0] == _TAG
    start = skip_blank(text, found.end()) if tagged else found.start()
    try:
        value, end = decode(text, start)
    except Unreadable:
        if tagged or _BEGINS_A_CALL.match(text, start):
            raise
        return Found(found.end(), (), found[0])
    if not tagged and not _is_call(value, names):
        return Found(end, (), text[start:end])
    calls: list[ToolCall] = [call_of(value)]
    while (here := skip_blank(text, end)) < len(text) and text[here] == ";":
        value, end = decode(text, skip_blank(text, here + 1))
        calls.append(call_of(value))
    return Found(end, calls)


def _is_call(value: object, names: Collection[str]) -> bool:
    if not isinstance(value, Mapping):
        return False
    name = value.get("name")
    named = isinstance(name, str) and name in names
    return named or any(key in value for key in ("parameters", "arguments"))


def _write(message: Message) -> str:
    calls = "; ".join(
        encode({"name": one.name, "parameters": dict(one.arguments)})
        for one in sayable_calls(message, "llama3")
    )
    if message.content and calls:
        return f"{message.content}{_TAG}{calls}"
    return message.content or calls


LLAMA3 = Dialect("llama3", '{"name": "TOOL", "parameters": {...}}', _read, _write)
