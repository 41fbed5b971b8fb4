"""No text breaks a parser, or makes it run a call that was not made; what is said comes back."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from agentrl.agents.tool_calls import read_calls
from agentrl.core.errors import DataError
from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.dialects.choice import find_dialect
from agentrl.dialects.reading import Dialect
from agentrl.dialects.writing import format_call
from agentrl.registry import names
from agentrl.testing.contracts.dialect import TOOLS
from agentrl.testing.hostile_text import MARKS, hostile_texts

DIALECTS = {name: find_dialect(name) for name in names("dialect") if name != "response"}
every_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
FEW = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

tool_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(MARKS).filter(lambda mark: "\ud800" not in mark)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
contents = st.sampled_from(["", "Let me see.", "\u00e9 \u4e16: a < b, {c} [d]\n\nso"])


def schema_of(value: Any) -> dict[str, Any]:
    """The schema of exactly the type of ``value``."""
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}
    return {"type": kinds.get(type(value), "null" if value is None else "object")}


def tools_for(calls: tuple[ToolCall, ...]) -> list[ToolSpec]:
    properties: dict[str, dict[str, Any]] = {}
    for call in calls:
        mine = properties.setdefault(call.name, {})
        mine.update({key: schema_of(value) for key, value in call.arguments.items()})
    return [ToolSpec(name, "", {"properties": mine}) for name, mine in properties.items()]


@st.composite
def messages(draw: st.DrawFn, dialect: Dialect) -> Message:
    keys = tool_names if dialect.untyped else st.text(max_size=8)
    count = draw(st.integers(1, 3))
    calls = []
    for at in range(count):
        # One tool a call: its schema then says exactly what its arguments are.
        name = f"{draw(tool_names)}{at}"
        calls.append(ToolCall(f"call_{at}", name, draw(st.dictionaries(keys, values, max_size=3))))
    content = "" if dialect.name == "openai" else draw(contents)
    return Message("assistant", content, tool_calls=tuple(calls))


@every_dialect
@FEW
@given(data=st.data())
def test_what_is_written_is_read_back(dialect: Dialect, data: st.DataObject) -> None:
    message = data.draw(messages(dialect))
    tools = tools_for(message.tool_calls)
    try:
        text = format_call(dialect, message, tools)
    except DataError:
        # Only bare text may be unsayable: a value that holds the tag which ends it.
        assert dialect.untyped
        assume(False)
    action, status = read_calls(Message("assistant", text), dialect, tools)
    assert status == "ok"
    assert action == Message("assistant", message.content.strip(), tool_calls=message.tool_calls)
    again = [json.dumps(dict(one.arguments)) for one in action.tool_calls]
    assert again == [json.dumps(dict(one.arguments)) for one in message.tool_calls]


THINKING = re.compile(r"</?think(?:ing)?>|\[/?THINK\]")


def made(text: str, call: ToolCall, dialect: Dialect) -> bool:
    """Whether ``call`` stands somewhere in ``text`` as a whole, outside thinking.

    Slow and independent of how dialects scan: every stretch of the text is tried on its own. It
    must not follow an opening of a thought, nor be followed by a closing that nothing opened.
    """
    for start in range(len(text)):
        before = THINKING.findall(text[:start])
        if before and "/" not in before[-1]:
            continue
        for end in range(start + 1, len(text) + 1):
            after = THINKING.search(text, end)
            if after and "/" in after[0]:
                continue
            stretch = text[start:end]
            if THINKING.search(stretch):
                break
            alone = [one for one in dialect.read(stretch, TOOLS).calls if one.problem is None]
            if [(one.name, one.arguments) for one in alone] == [(call.name, call.arguments)]:
                return True
    return False


plain_calls = st.builds(
    lambda name, query: ToolCall("", name, {"query": query} if query else {}),
    st.sampled_from(["look", "search"]),
    st.sampled_from(["", "cat", "</a>", "}", '"', "\\"]),
)
short_marks = st.sampled_from([mark for mark in MARKS if len(mark) < 20])


@st.composite
def mutated(draw: st.DrawFn, dialect: Dialect) -> str:
    """Valid calls among marks and text, then cut, doubled, swapped or spoilt somewhere."""
    written = st.builds(
        lambda call: dialect.write(Message("assistant", "", tool_calls=(call,))), plain_calls
    )
    thought = st.builds("<think>{}</think>".format, written)
    piece = written | written | thought | short_marks | st.sampled_from(["so ", "\n", "{", "x"])
    text = "".join(draw(st.lists(piece, min_size=1, max_size=4)))
    for _ in range(draw(st.integers(0, 2))):
        at, to = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        middle = draw(
            st.sampled_from(["", text[at:to] * 2, text[at:to][::-1], "\u00e9"]) | short_marks
        )
        text = text[:at] + middle + text[to:]
    return text[:160]


@every_dialect
@settings(FEW, max_examples=40)
@given(data=st.data())
def test_only_calls_that_stand_whole_outside_thinking_run(
    dialect: Dialect, data: st.DataObject
) -> None:
    text = data.draw(mutated(dialect))
    action, status = read_calls(Message("assistant", text), dialect, TOOLS)
    runs = [call for call in action.tool_calls if call.problem is None]
    assert not runs or status in ("ok", "parse_error")
    for call in runs:
        # A mark inside a call belongs to its arguments; the slow search cannot tell.
        assume(not THINKING.search(f"{call.name} {json.dumps(dict(call.arguments))}"))
        assert made(text, call, dialect), (text, call)
    truncated, _ = read_calls(Message("assistant", text), dialect, TOOLS, truncated=True)
    assert all(call.problem is not None for call in truncated.tool_calls)


any_text = st.text(st.characters(), max_size=80) | st.lists(
    st.sampled_from(MARKS) | st.text(st.characters(), max_size=5), max_size=25
).map("".join)


@every_dialect
@settings(FEW, max_examples=100)
@given(text=any_text)
def test_any_text_is_read_and_its_calls_are_safe(dialect: Dialect, text: str) -> None:
    action, status = read_calls(Message("assistant", text), dialect, TOOLS)
    assert action.content or action.tool_calls
    assert (status == "ok") == all(call.problem is None for call in action.tool_calls)
    ids = [call.id for call in action.tool_calls]
    assert len(set(ids)) == len(ids)
    for call in action.tool_calls:
        assert call.id
        if call.problem is None:
            assert call.name.strip()
            json.dumps(dict(call.arguments), allow_nan=False, ensure_ascii=False).encode()
        else:
            assert not call.arguments


@every_dialect
def test_long_hostile_answers_are_read_in_time(dialect: Dialect) -> None:
    # Linear reading takes well below a second for each; a quadratic one takes hours.
    began = time.monotonic()
    for name, text in hostile_texts(dialect, 100_000):
        read_calls(Message("assistant", text), dialect, TOOLS)
        assert time.monotonic() - began < 60, name
    read_calls(Message("assistant", "<think></think>" * 70_000), dialect, TOOLS)
    assert time.monotonic() - began < 60


def test_sixty_four_levels_are_read_and_one_more_is_not() -> None:
    for levels, status in ((64, "ok"), (65, "parse_error")):
        raw = '{"a":' * levels + "1" + "}" * levels
        text = Message("assistant", f"<action>look {raw}</action>")
        assert read_calls(text, DIALECTS["action"], TOOLS)[1] == status
