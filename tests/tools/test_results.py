"""What a tool may return, and what is named as a mistake of the tool."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from agentrl.core.errors import EnvError, ToolError
from agentrl.core.protocols import ToolResult
from agentrl.tools.results import NOTHING, result_of


@dataclass
class Point:
    x: int


class Item(BaseModel):
    name: str


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        ("", NOTHING),
        (None, NOTHING),
        (3, "3"),
        (2.5, "2.5"),
        (True, "true"),
        ([1, "\u00e9", None], '[1, "\u00e9", null]'),
        ({"a": {"b": 1}}, '{"a": {"b": 1}}'),
        ((1, 2), "[1, 2]"),
        (Point(1), '{"x": 1}'),
        (Item(name="mug"), '{"name": "mug"}'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (b"caf\xc3\xa9", "caf\u00e9"),
        (bytearray(b"ok"), "ok"),
        ("a\x00\ud800", "a\ufffd\ufffd"),
        ({"a": "\ud800"}, '{"a": "\ufffd"}'),
    ],
    ids=repr,
)
def test_these_are_answers(value: Any, text: str) -> None:
    assert result_of(value, "the tool 't'") == ToolResult(text)


def test_a_tool_result_is_cleaned_too() -> None:
    given = ToolResult("a\x07", final=True, answer="b\ud800")
    assert result_of(given, "the tool 't'") == ToolResult("a\ufffd", final=True, answer="b\ufffd")


def test_bytes_that_are_no_text_are_told_to_the_model() -> None:
    with pytest.raises(ToolError, match="3 bytes that are no UTF-8 text"):
        result_of(b"\xff\xfe\x00", "the tool 't'")


async def _never() -> None: ...


def _generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_never, "the tool 't' returned a coroutine that nobody awaits: an 'await' is missing"),
        (asyncio.Event().wait, "a coroutine that nobody awaits"),
        (_generator, "returned a generator; return the whole text"),
        (object, "returned an object, which has no JSON form"),
        (lambda: {"a": object()}, "returned a dict, which has no JSON form"),
        (lambda: ToolResult(3), "a ToolResult whose content is no text, but an int"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_answer_is_named(make: Any, said: str) -> None:
    with pytest.raises(EnvError, match=said):
        result_of(make(), "the tool 't'")


def test_a_result_that_holds_itself_is_named() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(EnvError, match="no JSON form"):
        result_of(endless, "the tool 't'")


def test_none_against_its_own_annotation_is_a_forgotten_return() -> None:
    with pytest.raises(EnvError, match=r"returned None.*a 'return' is missing"):
        result_of(None, "the tool 't'", may_be_none=False)
