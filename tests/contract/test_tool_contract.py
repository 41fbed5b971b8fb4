"""The contract of tools catches each kind of breach, and says it in words."""

from __future__ import annotations

import asyncio
import math
import random
import re
import time
from typing import Any, ClassVar

import pytest

from agentrl.core.errors import ConfigError, ToolError
from agentrl.core.message import ToolSpec
from agentrl.testing.checking import check_plugin
from agentrl.testing.contract import run_checks
from agentrl.testing.contracts import tool
from agentrl.testing.contracts.tool import ToolSubject, edges, made_up


class Good:
    """Say it again.

    Args:
        text: What.
        times: How often.
    """

    read_only = True

    async def __call__(self, text: str, times: int = 1) -> str:
        if times > 9:
            raise ToolError("too often")
        return text * times


class Crashes:
    """Say it again, but not an empty text.

    Args:
        text: What.
        times: How often.
    """

    async def __call__(self, text: str, times: int = 1) -> str:
        return text[0] * times


class Remembers:
    """Remember.

    Args:
        text: What.
    """

    seen: ClassVar[list[str]] = []

    async def __call__(self, text: str) -> str:
        self.seen.append(text)
        return str(len(self.seen))


class Changes:
    """Count, though it says that it changes nothing.

    Args:
        text: What.
    """

    read_only = True

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, text: str) -> str:
        self.count += 1
        return str(self.count)


class Blocks:
    """Block.

    Args:
        text: What.
    """

    async def __call__(self, text: str) -> str:
        if len(text) < 5:
            time.sleep(0.6)  # noqa: ASYNC251 - the mistake that is to be found
        return ""


class Rolls:
    """Roll.

    Args:
        text: What.
    """

    async def __call__(self, text: str) -> str:
        random.random()
        return ""


class Dear:
    """Take long to be made."""

    def __init__(self) -> None:
        time.sleep(1.01)

    def __call__(self) -> str:
        return ""


class Undescribed:
    spec = ToolSpec("u", "It.", {"type": "object", "properties": {"q": {"type": "string"}}}, True)

    async def __call__(self, **arguments: Any) -> str:
        return ""


def findings(checks: Any, source: Any) -> str:
    found = asyncio.run(run_checks(checks, ToolSubject(source)))
    return "; ".join(one.detail for one in found if not one.ok)


class Divides:
    """Divide a thousand.

    Args:
        by: Divisor.
    """

    async def __call__(self, by: int) -> float:
        return 1000 / by


class Roots:
    """Take a root.

    Args:
        of: Number.
    """

    async def __call__(self, of: float | None = None) -> float:
        return math.sqrt(of or 1.0)


@pytest.mark.parametrize(
    ("schema", "numbers"),
    [
        ({"type": "integer"}, [0, -1]),
        ({"type": "integer", "minimum": 1, "maximum": 9}, [1, 9]),
        ({"type": "integer", "minimum": 0.5}, []),
        ({"type": "number", "minimum": 0.5}, [0.5]),
        ({"type": "number", "exclusiveMinimum": 0}, []),
        ({"type": "number", "exclusiveMaximum": 0}, [-1]),
        ({"type": "integer", "multipleOf": 3}, [0]),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, [0, -1]),
        ({"type": ["integer", "null"], "minimum": 0}, [0]),
        ({"type": "integer", "enum": [4, 5]}, []),
        ({"type": "string"}, []),
    ],
)
def test_edges_lie_within_the_schema(schema: dict[str, Any], numbers: list[float]) -> None:
    assert edges(schema) == numbers


def test_numbers_that_a_tool_did_not_think_of_are_named() -> None:
    text = findings((tool.numbers_at_their_edges_are_answered,), Divides)
    assert "by=0 of 'divides' ended the episode" in text
    assert "ZeroDivisionError" in text
    text = findings((tool.numbers_at_their_edges_are_answered,), Roots)
    assert "of=-1 of 'roots' ended the episode" in text


def test_a_good_tool_passes() -> None:
    assert findings(tool.CHECKS, Good) == ""


@pytest.mark.parametrize(
    ("source", "check", "said"),
    [
        (
            Crashes,
            tool.odd_arguments_are_answered,
            "text='' of 'crashes' ended the episode: EnvError: .*IndexError.* Raise ToolError for",
        ),
        (
            Remembers,
            tool.episodes_share_nothing,
            "'remembers' answered '1' in an episode of its own, and '4' after another",
        ),
        (Changes, tool.read_only_means_it, "marked read-only, and answered '1', then '2'"),
        (Blocks, tool.it_leaves_the_event_loop_alone, "the tool 'blocks' held the event loop"),
        (Rolls, tool.global_randomness_is_left_alone, "the global random module changed"),
        (Undescribed(), tool.its_spec_can_be_shown, "'u': the parameter 'q' is not described"),
        (Undescribed(), tool.it_refuses_what_does_not_fit, "took a call with an unknown argument"),
        (Dear, tool.closing_frees_it, r"making and closing it takes 1\.\d s an episode"),
    ],
)
def test_each_rule_catches_its_breach(source: Any, check: Any, said: str) -> None:
    assert re.search(said, findings((check,), source))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"enum": ["b", "a"]}, "b"),
        ({"type": "integer", "minimum": 3}, 3),
        ({"type": "number", "exclusiveMinimum": 0}, 1),
        ({"type": "string", "minLength": 3}, "aaa"),
        ({"type": ["string", "null"]}, "a"),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, True),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 1}, [1]),
        ({"type": "array"}, []),
        ({"type": "integer", "default": 7}, 7),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
                "required": ["a"],
            },
            {"a": 1},
        ),
    ],
)
def test_arguments_are_made_up_from_the_schema(schema: dict[str, Any], value: Any) -> None:
    assert made_up(schema) == value


def test_tools_are_checked_by_name_with_their_options() -> None:
    findings = check_plugin(
        "tool", "search", ["corpus=[the cat, a dog]", "arguments={query: cat, }"]
    )
    assert [one for one in findings if not one.ok] == []
    with pytest.raises(ConfigError, match="needs the option 'corpus'"):
        check_plugin("tool", "search")
    with pytest.raises(ConfigError, match=r"'notes' is several tools .*write_note"):
        check_plugin("tool", "notes", ["arguments={title: x}"])
    assert check_plugin("tool", "notes", ["arguments={write_note: {title: a, text: b}}"])
