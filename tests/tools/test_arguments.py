"""What a model may pass: the coercions that are accepted, and what is refused in its words."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.tools.arguments import ArgumentsRefused, read_arguments, unfit_text
from agentrl.tools.docstring import Documented

NAMES = (
    *("whole", "real", "yes", "text", "choice", "colour"),
    *("point", "numbers", "pair", "maybe", "table"),
)


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int


def takes(
    whole: int = 0,
    real: float = 0.0,
    yes: bool = False,
    text: str = "",
    choice: Literal["a", "b"] = "a",
    colour: Colour = Colour.RED,
    point: Point = Point(0),  # noqa: B008
    numbers: set[int] = set(),  # noqa: B006
    pair: tuple[int, str] = (0, ""),
    maybe: int | None = None,
    table: dict[str, Any] = {},  # noqa: B006
) -> None: ...


ARGUMENTS = read_arguments(takes, Documented("", dict.fromkeys(NAMES, "x")), "the tool 'takes'")


@pytest.mark.parametrize(
    ("name", "given", "got"),
    [
        ("whole", "3", 3),
        ("whole", 3.0, 3),
        ("real", 3, 3.0),
        ("real", "2.5", 2.5),
        ("yes", "true", True),
        ("yes", 0, False),
        ("colour", "red", Colour.RED),
        ("point", {"x": "4"}, Point(4)),
        ("numbers", [1, "2", 1], {1, 2}),
        ("pair", [1, "b"], (1, "b")),
        ("maybe", None, None),
        ("table", {"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
    ],
)
def test_these_coercions_are_accepted(name: str, given: Any, got: Any) -> None:
    values = ARGUMENTS.read({name: given})
    assert values == {name: got}
    assert type(values[name]) is type(got)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"whole": 3.5}, r"'whole': .*got 3\.5"),
        ({"whole": "three"}, "'whole': .*valid integer.*got 'three'"),
        ({"whole": None}, "'whole': .*got None"),
        ({"text": 5}, "'text': .*valid string, got 5"),
        ({"text": ["a"]}, "'text': .*valid string"),
        ({"choice": "c"}, "'choice': input should be 'a' or 'b', got 'c'"),
        ({"colour": "green"}, "'colour': .*'red', got 'green'"),
        ({"point": {"y": 1}}, r"'point\.x': .*required"),
        ({"pair": [1]}, "'pair"),
        ({"table": "x"}, "'table'"),
        ({"txet": "a"}, "unknown argument 'txet'; did you mean 'text'"),
        ({"text": "x" * 1000, "whole": "y" * 1000}, r"got 'y{10,60}\.\.\."),
    ],
)
def test_what_does_not_fit_is_said_for_the_model(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentsRefused, match=said) as caught:
        ARGUMENTS.read(given)
    assert "Expected: whole?: integer, real?: number, yes?: boolean" in str(caught.value)
    assert "pydantic" not in str(caught.value)


def test_what_is_left_out_keeps_the_default_of_the_code() -> None:
    assert ARGUMENTS.read({}) == {}


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ArgumentsRefused) as caught:
        ARGUMENTS.read({"whole": "x", "real": "y", "other": 1})
    assert all(word in str(caught.value) for word in ("'whole'", "'real'", "'other'"))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("a\ud800b", r"'a' holds '\\ud800'"),
        ("a\0b", r"'a' holds '\\x00'"),
        ({"k": ["\udfff"]}, r"holds '\\udfff'"),
        ({"k\0": 1}, r"holds '\\x00'"),
        (float("nan"), "'a' is nan, which is no JSON number"),
        ([[float("inf")]], "'a' is inf"),
    ],
)
def test_what_is_no_text_or_number_is_refused_however_deep(value: Any, said: str) -> None:
    problem = unfit_text({"a": value})
    assert problem is not None
    with pytest.raises(ArgumentsRefused, match=said):
        raise ArgumentsRefused(problem)
    problem.encode()  # the model must be able to read it


def test_depth_is_no_danger() -> None:
    deep: Any = "\ud800"
    for _ in range(50_000):
        deep = [deep]
    assert unfit_text({"a": deep}) is not None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(NAMES) | st.text(), JSON, max_size=4))
def test_no_arguments_raise_anything_else(given: dict[str, Any]) -> None:
    if unfit_text(given) is None:
        with contextlib.suppress(ArgumentsRefused):
            ARGUMENTS.read(given)
