"""The arguments of a tool: read from its signature and docstring, checked before every call.

What is accepted is pydantic's lax mode: ``"3"`` and ``3.0`` for an int, ``3`` for a float,
``"true"`` or ``1`` for a bool, a list for a tuple or set, an object for a dataclass or model, a
value for an Enum. Never accepted: a number for a str, ``3.5`` for an int, null where the type does
not allow it, unknown names, NaN and infinity, characters that are none (surrogates, NUL).
"""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from agentrl.core.errors import ConfigError, ToolError, nearest
from agentrl.tools.docstring import Documented
from agentrl.tools.schema import adapter_of

__all__ = ["Arguments", "ArgumentsRefused", "Parameter", "read_arguments", "unfit_text"]

_SHOWN = 60


class ArgumentsRefused(ToolError):
    """Arguments that do not fit; the tool was not called."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a tool. ``schema`` is what the model sees."""

    name: str
    required: bool
    adapter: TypeAdapter[Any]
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Arguments:
    """The parameters of a tool by name, and whether its return type allows ``None``."""

    parameters: Mapping[str, Parameter]
    may_return_none: bool = True

    def json_schema(self) -> dict[str, Any]:
        """The JSON schema of type object that describes them."""
        return {
            "type": "object",
            "properties": {one.name: dict(one.schema) for one in self.parameters.values()},
            "required": [one.name for one in self.parameters.values() if one.required],
        }

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """``given`` as the values that the tool is called with; what is left out stays so.

        Raises:
            ArgumentsRefused: they do not fit; says all that is wrong, for the model.
        """
        problems: list[str] = []
        values: dict[str, Any] = {}
        for name in given:
            if name not in self.parameters:
                problems.append(f"unknown argument {name!r}{nearest(str(name), self.parameters)}")
        for name, parameter in self.parameters.items():
            if name not in given:
                problems += [f"'{name}' is missing"] if parameter.required else []
                continue
            try:
                values[name] = parameter.adapter.validate_python(given[name])
            except ValidationError as error:
                problems += _explain(name, error)
        if problems:
            raise ArgumentsRefused(f"{'; '.join(problems)}. Expected: {self.summary()}")
        return values

    def summary(self) -> str:
        """Names and types in a line."""
        listed = [
            f"{one.name}{'' if one.required else '?'}: {_type(one.schema)}"
            for one in self.parameters.values()
        ]
        return ", ".join(listed) or "no arguments"


def read_arguments(call: Callable[..., Any], documented: Documented, label: str) -> Arguments:
    """The arguments of ``call``, a function or bound method.

    Raises:
        ConfigError: parameters without type or documentation, of a type that JSON has not, or
            that cannot be given by name; says all of it.
    """
    try:
        signature = inspect.signature(call)
        hints = typing.get_type_hints(call, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise ConfigError(
            f"{label}: its signature cannot be read ({error}); a tool is a function or a class "
            "with __call__, whose types are names of its module"
        ) from error
    problems: list[str] = []
    found: dict[str, Parameter] = {}
    for one in signature.parameters.values():
        try:
            found[one.name] = _parameter(one, hints.get(one.name, one.empty), documented)
        except TypeError as error:
            problems.append(str(error))
    for name in documented.arguments:
        if name not in signature.parameters:
            known = nearest(name, signature.parameters)
            problems.append(f"the docstring describes '{name}', which is no parameter{known}")
    if problems:
        raise ConfigError("\n".join([f"{label} cannot be shown to a model:", *_listed(problems)]))
    return Arguments(found, _allows_none(hints.get("return", Any)))


def _allows_none(annotation: Any) -> bool:
    if annotation in (Any, object, None, type(None)):
        return True
    return type(None) in typing.get_args(annotation)


def _listed(problems: list[str]) -> list[str]:
    return [f"- {one}" for one in problems]


def _parameter(one: inspect.Parameter, annotation: Any, documented: Documented) -> Parameter:
    name = one.name
    if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD, one.POSITIONAL_ONLY):
        raise TypeError(f"'{one}' cannot be given by name; name every parameter")
    if annotation is one.empty:
        raise TypeError(f"'{name}' has no type; annotate it, such as {name}: str")
    if annotation is Any or annotation is object:
        raise TypeError(f"'{name}' may be anything; say what, such as {name}: str | int")
    try:
        adapter, schema = adapter_of(annotation)
    except (TypeError, NameError) as error:
        raise TypeError(
            f"'{name}' is of a type that no JSON schema describes ({error}); use str, int, float, "
            "bool, Literal, Enum, list, dict, a dataclass or a pydantic model"
        ) from error
    text = documented.arguments.get(name) or schema.get("description")
    if not text:
        raise TypeError(
            f"'{name}' is not documented; add a line to the docstring:\n"
            f"    Args:\n        {name}: What it is."
        )
    optional = one.default is not one.empty
    shown = _without_null(schema) if optional and one.default is None else dict(schema)
    shown["description"] = text
    if optional and one.default is not None:
        shown.update(_default(one.default))
    return Parameter(name, not optional, adapter, shown)


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An optional parameter is left out; that null may also be said need not be shown."""
    choices = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    if len(choices) == 1:
        return {**choices[0], **rest}
    return {**rest, "anyOf": choices} if choices else dict(schema)


def _default(value: Any) -> dict[str, Any]:
    try:
        shown = to_jsonable_python(value)
    except PydanticSerializationError:
        return {}
    unfit = isinstance(shown, float) and not math.isfinite(shown)
    return {} if unfit else {"default": shown}


def unfit_text(arguments: Mapping[str, Any]) -> str | None:
    """What in ``arguments`` is no JSON value or text, in words for the model; ``None``: nothing."""
    waiting: list[tuple[str, Any]] = [(str(name), value) for name, value in arguments.items()]
    waiting += [(str(name), name) for name in arguments]
    while waiting:
        where, value = waiting.pop()
        if isinstance(value, str):
            odd = next((c for c in value if c == "\0" or "\ud800" <= c <= "\udfff"), None)
            if odd is not None:
                return f"{where[:_SHOWN]!a} holds {odd!a}, which no text may hold"
        elif isinstance(value, float) and not math.isfinite(value):
            return f"{where[:_SHOWN]!a} is {value}, which is no JSON number"
        elif isinstance(value, Mapping):
            waiting += [(where, one) for pair in value.items() for one in pair]
        elif isinstance(value, list | tuple):
            waiting += [(where, one) for one in value]
    return None


def _explain(name: str, error: ValidationError) -> list[str]:
    lines = []
    for one in error.errors(include_url=False, include_context=False)[:5]:
        where = ".".join((name, *(str(part) for part in one["loc"])))
        got = repr(one["input"])
        got = got if len(got) <= _SHOWN else got[: _SHOWN - 3] + "..."
        lines.append(f"'{where}': {one['msg'][0].lower()}{one['msg'][1:]}, got {got}")
    return lines


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(repr(one) for one in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(_type(one) for one in schema["anyOf"])
    return str(schema.get("type", "any"))
