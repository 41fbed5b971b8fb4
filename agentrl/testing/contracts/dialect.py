"""What every dialect must do. The subject is one: ``assert_contract(CHECKS, dialect)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentrl.core.errors import DataError
from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.dialects.reading import Dialect, Reading
from agentrl.testing.contract import require

__all__ = ["CHECKS", "TOOLS"]

TOOLS = (
    ToolSpec(
        "search",
        "Find a thing.",
        {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "limit": {"type": "integer"},
                "exact": {"type": "boolean"},
                "weight": {"type": "number"},
                "where": {"type": "array", "items": {"type": "string"}},
                "nested": {"type": "object"},
            },
        },
    ),
    ToolSpec("look", "Look around.", {"type": "object", "properties": {}}),
)
_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {},
    {"query": "cat"},
    {"query": ""},
    {"query": 'say "hi" \\ / <b> & \u00e9\u4e16\U0001f600 \x00\t\n line'},
    {"query": '{"name": "look"}', "limit": 9007199254740993, "exact": True},
    {"weight": -0.1, "where": ["a", "b", ""], "nested": {"a": {"b": [1, 2.5, None, False]}}},
)


def _messages() -> Sequence[Message]:
    calls = [ToolCall(f"call_{at}", "search", one) for at, one in enumerate(_ARGUMENTS)]
    several = (calls[0], ToolCall("call_1", "look", {}), ToolCall("call_2", "search", {"limit": 2}))
    return [
        Message("assistant", "The cat is nine."),
        Message("assistant", "", tool_calls=several),
        Message("assistant", "Let me see.", tool_calls=(calls[1],)),
        *(Message("assistant", "", tool_calls=(call,)) for call in calls),
    ]


def _said(dialect: Dialect) -> list[tuple[Message, str]]:
    """What can be said of the usual messages; a dialect may refuse some, but not a plain call."""
    said = []
    for message in _messages():
        try:
            said.append((message, dialect.write(message)))
        except DataError:
            continue
    return said


def what_is_written_is_read_back(dialect: Dialect) -> None:
    """``read`` gives back what ``write`` wrote: names, arguments with their types, order."""
    for message, text in _said(dialect):
        found = dialect.read(text, TOOLS)
        expected = [(one.name, dict(one.arguments), None) for one in message.tool_calls]
        got = [(one.name, dict(one.arguments), one.problem) for one in found.calls]
        require(got == expected, f"{text!r} was read as {got}, expected {expected}")
        require(
            found.content == message.content,
            f"{text!r} has the content {found.content!r}, expected {message.content!r}",
        )


def a_plain_call_can_be_said(dialect: Dialect) -> None:
    """A call with one string argument can be written, unless only a template can write at all."""
    message = _messages()[2]
    try:
        dialect.write(Message("assistant", "yes"))
    except DataError:
        return
    require(
        bool(dialect.write(message)), f"the call {message.tool_calls[0]} was written as nothing"
    )


def calls_have_ids_of_their_own(dialect: Dialect) -> None:
    """Every call has an id, and no two of an answer have the same."""
    for _, text in _said(dialect):
        ids = [call.id for call in dialect.read(text, TOOLS).calls]
        require(all(ids) and len(set(ids)) == len(ids), f"{text!r} was read with the ids {ids}")


def nothing_in_a_thought_is_a_call(dialect: Dialect) -> None:
    """A call drafted in thinking is never made: closed, still open, or opened by the prompt."""
    for message, text in _said(dialect):
        if not message.tool_calls:
            continue
        for thought in (f"<think>{text}</think>", f"<think>{text}", f"{text}</think>"):
            calls = dialect.read(thought, TOOLS).calls
            require(not calls, f"{thought!r} made the calls {calls}")
        found = dialect.read(f"<think>{text}</think>{text}", TOOLS)
        require(
            len(found.calls) == len(message.tool_calls),
            f"a thought before {text!r} changed its calls to {found.calls}",
        )


def a_cut_call_is_never_made(dialect: Dialect) -> None:
    """Of a call cut anywhere before its end, nothing runs with arguments it was not given."""
    for message, text in _said(dialect):
        made = [(one.name, dict(one.arguments)) for one in message.tool_calls]
        for end in range(len(text)):
            found = dialect.read(text[:end], TOOLS).calls
            runs = [(one.name, dict(one.arguments)) for one in found if one.problem is None]
            # Without a closing mark, a name that stands alone is a whole call.
            partial = [one for one in runs if one not in made and one[1]]
            require(not partial, f"{text[:end]!r} made the calls {partial}")


def any_text_is_read(dialect: Dialect) -> None:
    """``read`` raises on no text: broken, hostile, deep, long or empty."""
    broken = [text[:end] for _, text in _said(dialect) for end in (1, len(text) // 2)]
    deep = ["[" * 5000, '{"a":' * 5000, "<think>" * 5000, dialect.example * 500]
    odd = ["", "\x00", "\ud800", "</think>", "{", "[", '{"name":', "\u2028"]
    for text in (*broken, *deep, *odd, dialect.example):
        found = dialect.read(text, TOOLS)
        require(isinstance(found, Reading), f"{text[:40]!r} gave {type(found).__name__}")


def an_example_is_given(dialect: Dialect) -> None:
    """``example`` shows a model what a call looks like."""
    require(bool(dialect.name.strip()), "the dialect has no name")
    require(bool(dialect.example.strip()), "the dialect has no example")


CHECKS = (
    an_example_is_given,
    a_plain_call_can_be_said,
    what_is_written_is_read_back,
    calls_have_ids_of_their_own,
    nothing_in_a_thought_is_a_call,
    a_cut_call_is_never_made,
    any_text_is_read,
)
