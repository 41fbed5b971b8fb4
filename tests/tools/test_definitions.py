"""From a class or function to what the model is told: types, documentation, names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

from agentrl.core.errors import ConfigError
from agentrl.core.message import ToolSpec
from agentrl.tools import definitions_of, tool
from agentrl.tools.docstring import read_docstring


class UnitConverter:
    """Convert a length from one unit to another.

    Args:
        value: Length to convert.
        to: Unit of the answer.
    """

    async def __call__(self, value: float, to: Literal["m", "ft"] = "m") -> str:
        return f"{value / 3.28084:.3f} m" if to == "m" else f"{value * 3.28084:.3f} ft"


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Order(BaseModel):
    item: str = Field(description="What to buy.")
    where: Point


class Node(BaseModel):
    below: list[Node] = []


def spec_of(source: Any) -> ToolSpec:
    (definition,) = definitions_of(source)
    return definition.spec


def test_ten_lines_are_a_tool() -> None:
    assert spec_of(UnitConverter) == ToolSpec(
        "unit_converter",
        "Convert a length from one unit to another.",
        {
            "type": "object",
            "properties": {
                "value": {"type": "number", "description": "Length to convert."},
                "to": {
                    "type": "string",
                    "enum": ["m", "ft"],
                    "description": "Unit of the answer.",
                    "default": "m",
                },
            },
            "required": ["value"],
        },
    )


def test_every_usual_type_has_a_plain_schema() -> None:
    def shop(
        order: Order,
        at: Point,
        colours: list[Colour],
        limits: dict[str, int],
        size: int | None = None,
        name: Optional[str] = None,  # noqa: UP045
        one: Annotated[int, Field(ge=1, le=9, description="A digit.")] = 1,
        kind: Literal["a"] = "a",
    ) -> None:
        """Buy.

        Args:
            order: What.
            at: Where.
            colours: Which.
            limits: Prices.
            size (int, optional): How large.
            name: Who.
            kind: A letter,
                or none.
        """

    parameters = spec_of(shop).parameters
    assert parameters["required"] == ["order", "at", "colours", "limits"]
    point = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    point["properties"]["y"] = {"default": 0, "type": "integer"}  # type: ignore[index]
    assert parameters["properties"] == {
        "order": {
            "type": "object",
            "properties": {
                "item": {"description": "What to buy.", "type": "string"},
                "where": point,
            },
            "required": ["item", "where"],
            "description": "What.",
        },
        "at": {**point, "description": "Where."},
        "colours": {
            "type": "array",
            "items": {"enum": ["red", "blue"], "type": "string"},
            "description": "Which.",
        },
        "limits": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "description": "Prices.",
        },
        "size": {"type": "integer", "description": "How large."},
        "name": {"type": "string", "description": "Who."},
        "one": {
            "type": "integer",
            "minimum": 1,
            "maximum": 9,
            "description": "A digit.",
            "default": 1,
        },
        "kind": {
            "type": "string",
            "enum": ["a"],
            "description": "A letter, or none.",
            "default": "a",
        },
    }


def undocumented(value: float, to: str = "m") -> str:
    """Convert."""
    return ""


def untyped(value, to: str) -> str:  # type: ignore[no-untyped-def]
    """Convert.

    Args:
        value: Length.
        to: Unit.
    """
    return ""


def misspelt(value: float) -> str:
    """Convert.

    Args:
        value: Length.
        valeu: Length.
    """
    return ""


def starred(*values: float) -> str:
    """Add.

    Args:
        values: Numbers.
    """
    return ""


def of_anything(value: Any) -> str:
    """Show.

    Args:
        value: Anything.
    """
    return ""


def of_functions(value: Callable[[], None]) -> str:
    """Call.

    Args:
        value: A function.
    """
    return ""


def of_itself(value: Node) -> str:
    """Walk.

    Args:
        value: A tree.
    """
    return ""


def without_docstring(value: float) -> str:
    return ""


def generating(value: float) -> Any:
    """Count.

    Args:
        value: A number.
    """
    yield "1"


async def generating_async(value: float) -> Any:
    """Count.

    Args:
        value: A number.
    """
    yield "1"


class Both:
    """Two things at once."""

    def __call__(self) -> str:
        return ""

    @tool
    def other(self) -> str:
        """Do the other."""
        return ""


class Hasty:
    """Wait."""

    deadline_s = 0.0

    async def __call__(self) -> None: ...


class Sometimes:
    """Read."""

    read_only = "yes"

    async def __call__(self) -> None: ...


@tool(name="a tool")
def with_a_bad_name() -> None:
    """Nothing."""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            undocumented,
            r"'value' is not documented.*\n.*Args:\n.*value: What(.|\n)*'to' is not docu",
        ),
        (untyped, "'value' has no type; annotate it, such as value: str"),
        (misspelt, "describes 'valeu', which is no parameter; did you mean 'value'"),
        (starred, r"'\*values: 'float'' cannot be given by name"),
        (of_anything, "'value' may be anything; say what"),
        (of_functions, "'value' is of a type that no JSON schema describes"),
        (of_itself, "the type 'Node' holds itself"),
        (without_docstring, "has no docstring; say in one what it does"),
        (generating, "yields; a tool returns its whole text at once"),
        (generating_async, "yields"),
        (lambda: "", "'<lambda>'.*a name must be 1 to 64 letters"),
        (with_a_bad_name, "the tool 'a tool'.*a name must be"),
        (Both, r"both __call__ and methods marked with @tool \(other\)"),
        (Hasty, "deadline_s must be seconds above 0, or None, got 0.0"),
        (Sometimes, "read_only must be True or False, got 'yes'"),
        (functools.partial(undocumented, to="m"), "a partial of a class makes its objects"),
        (3, "3 is no tool: give a function, a class"),
        (Point, "Point.*is no tool"),
    ],
    ids=lambda one: getattr(one, "__name__", str(one)[:20]),
)
def test_what_cannot_be_shown_is_refused_in_words(source: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        definitions_of(source)


def test_all_problems_of_a_tool_are_said_at_once() -> None:
    def wrong(a, *b: int, c: Any) -> str:  # type: ignore[no-untyped-def]
        """Fail."""
        return ""

    with pytest.raises(ConfigError) as caught:
        definitions_of(wrong)
    assert [line[:6] for line in str(caught.value).splitlines()[1:]] == [
        "- 'a' ",
        "- '*b:",
        "- 'c' ",
    ]


def test_a_type_of_a_function_is_named_as_what_it_is() -> None:
    class Local:
        pass

    def of_a_local_class(value: Local) -> str:
        """Show.

        Args:
            value: What.
        """
        return ""

    with pytest.raises(ConfigError, match=r"its signature cannot be read .*'Local'"):
        definitions_of(of_a_local_class)


def test_names_come_from_the_class_or_are_given() -> None:
    class HTTPServerPing:
        """Ping."""

        async def __call__(self) -> None: ...

    class Renamed(HTTPServerPing):
        """Ping."""

        name = "ping-2"

    assert spec_of(HTTPServerPing).name == "http_server_ping"
    assert spec_of(Renamed).name == "ping-2"


def test_the_docstring_of_a_dataclass_that_has_none_is_that_of_its_call() -> None:
    @dataclass
    class Reader:
        folder: str = "."

        def __call__(self) -> str:
            """Read the folder."""
            return self.folder

    assert spec_of(Reader).description == "Read the folder."


def test_methods_that_share_a_state_are_several_tools_in_order() -> None:
    class Shop:
        @tool
        def buy(self, item: str) -> str:
            """Buy.

            Args:
                item: What.
            """
            return item

        @tool(read_only=True, max_parallel=2, name="look_around")
        async def look(self) -> str:
            """Look."""
            return ""

        def private(self) -> None: ...

    buy, look = definitions_of(Shop)
    assert (buy.name, look.name) == ("buy", "look_around")
    assert (buy.settings.read_only, look.settings.read_only) == (False, True)
    assert look.settings.max_parallel == 2


class OwnSpec:
    spec = ToolSpec("own", "Its own.", {"type": "object", "properties": {"q": {"type": "string"}}})

    async def __call__(self, **arguments: Any) -> str:
        return str(arguments)


def with_parameters(parameters: Any) -> Any:
    made = OwnSpec()
    made.spec = ToolSpec("own", "Its own.", parameters)
    return made


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"type": "object", "x": {1, 2}}, "are not JSON"),
        ({"type": "object", "x": float("nan")}, "are not JSON"),
        ({"type": "object", "x": (1, 2)}, "change when they are written as JSON"),
        ({"type": "array"}, "must have the type 'object', got 'array'"),
        ({"type": "object", "properties": ["q"]}, "'properties' must map"),
        ({"type": "object", "required": ["q"]}, "'required' names 'q'"),
        (
            {"type": "object", "properties": {"q": {"$ref": "#/$defs/Q"}}},
            r"hold a \$ref, which templates do not look up",
        ),
        ([], "must be a JSON schema"),
    ],
)
def test_a_schema_that_no_template_can_write_is_refused(parameters: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        definitions_of(with_parameters(parameters))


def test_a_tool_may_know_its_own_spec() -> None:
    assert spec_of(OwnSpec()) is OwnSpec.spec
    assert spec_of(with_parameters({})).parameters == {}


def test_docstrings_are_taken_apart() -> None:
    documented = read_docstring(
        """Say it: in a line.

        More of it.

        Args:
            first: One line.
            second (dict[str, int], optional): Two
                lines: with a colon.

        Returns:
            A text.
        """
    )
    assert documented.description == "Say it: in a line.\n\nMore of it.\n\nReturns:\n    A text."
    assert documented.arguments == {"first": "One line.", "second": "Two lines: with a colon."}
    assert read_docstring(None).description == ""
