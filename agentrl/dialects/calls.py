"""From a JSON value to a call: what every JSON dialect has in common."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentrl.core.errors import DataError
from agentrl.core.message import Message, ToolCall
from agentrl.dialects.strict_json import Unreadable, decode, describe, skip_blank

__all__ = [
    "arguments_of",
    "call_of",
    "close",
    "decode_all",
    "problem_call",
    "refuse",
    "sayable_calls",
    "sayable_name",
]

_ARGUMENTS = ("arguments", "parameters")
_KNOWN = frozenset(("id", "name", "type", *_ARGUMENTS))


def call_of(value: Any, *, text_arguments: bool = False) -> ToolCall:
    """The call that a JSON object ``{"name": ..., "arguments": {...}}`` makes.

    ``parameters`` is read as ``arguments``; without either, or with ``""``, there are none. An
    ``id`` is the call's own. With ``text_arguments`` they may be a string that holds JSON.
    Anything else is a call with a problem.
    """
    if not isinstance(value, Mapping):
        return problem_call(f"a call must be a JSON object with a name, got {describe(value)}")
    name, given = value.get("name"), [key for key in _ARGUMENTS if key in value]
    call_id = value.get("id") or ""
    if not isinstance(name, str) or not name.strip():
        shown = describe(name) if "name" in value else "no name"
        return problem_call(f"the call must name a tool (a string as 'name'), got {shown}")
    if not isinstance(call_id, str):
        return problem_call(f"the id of a call must be a string, got {describe(call_id)}", name)
    unknown = sorted(value.keys() - _KNOWN)
    if unknown or len(given) > 1:
        keys = ", ".join(repr(key[:60]) for key in (unknown or given))
        why = "has unknown keys" if unknown else "gives its arguments twice"
        return problem_call(f"the call {why} ({keys}); expected 'name' and 'arguments'", name)
    arguments = value[given[0]] if given else {}
    return arguments_of(call_id, name, arguments, text_arguments=text_arguments)


def arguments_of(
    call_id: str, name: str, arguments: Any, *, text_arguments: bool = False
) -> ToolCall:
    """A call of ``name`` with ``arguments`` if they are an object; ``""`` counts as ``{}``."""
    if text_arguments and isinstance(arguments, str) and arguments.strip():
        try:
            arguments = decode_all(arguments)
        except Unreadable as problem:
            return problem_call(f"the arguments are {problem}", name, call_id)
    if isinstance(arguments, str) and not arguments.strip():
        arguments = {}
    if not isinstance(arguments, Mapping):
        what = f"the arguments must be a JSON object, got {describe(arguments)}"
        return problem_call(what, name, call_id)
    return ToolCall(call_id, name, arguments)


def decode_all(text: str) -> Any:
    """The JSON value that is the whole of ``text``.

    Raises:
        Unreadable: it is not one, or something follows it.
    """
    value, end = decode(text, skip_blank(text, 0))
    end = skip_blank(text, end)
    if end != len(text):
        raise Unreadable(f"invalid JSON: {text[end : end + 24]!r} follows the value")
    return value


def problem_call(problem: str, name: str = "", call_id: str = "") -> ToolCall:
    """A call that was made and cannot be run."""
    return ToolCall(call_id, name, {}, problem)


def close(text: str, position: int, closing: str) -> int:
    """The position after ``closing``, before which only white space may stand.

    Raises:
        Unreadable: something else stands there.
    """
    here = skip_blank(text, position)
    if text.startswith(closing, here):
        return here + len(closing)
    got = repr(text[here : here + 24]) if here < len(text) else "the end of the answer"
    raise Unreadable(f"expected {closing} after the call, got {got}")


def sayable_calls(message: Message, name: str) -> tuple[ToolCall, ...]:
    """The calls of a message that is to be written.

    Raises:
        DataError: one has a problem; such a call was read from text that is no call.
    """
    for call in message.tool_calls:
        if call.problem is not None:
            raise refuse(name, f"the call of '{call.name}' has a problem: {call.problem}")
    return message.tool_calls


def refuse(dialect: str, why: str) -> DataError:
    """What ``write`` raises for a message its dialect cannot say."""
    return DataError(f"the dialect '{dialect}' cannot say this message: {why}")


def sayable_name(text: str, pattern: re.Pattern[str], dialect: str) -> str:
    """``text`` if the dialect can write it as a name.

    Raises:
        DataError: it cannot.
    """
    if not pattern.fullmatch(text):
        raise refuse(dialect, f"{text!r} cannot be written as a name (expected {pattern.pattern})")
    return text
