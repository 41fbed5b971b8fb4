"""JSON schemas as pydantic makes them, made plain: what any chat template can write out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

__all__ = ["adapter_of", "plain_schema", "problem_of_schema"]

_SCHEMAS = ("properties", "patternProperties")
_SCHEMA = ("items", "additionalProperties", "not", "contains", "propertyNames")
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_DROPPED = ("title", "$defs", "discriminator")


class _Quiet(GenerateJsonSchema):
    """Says nothing of defaults that JSON cannot hold; they are not shown."""

    def emit_warning(self, kind: Any, detail: str) -> None:
        pass


def adapter_of(annotation: Any) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """What validates values of ``annotation``, and its plain JSON schema.

    Raises:
        TypeError: JSON has no values of such a type; says why in words.
    """
    try:
        return _cached(annotation)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _made(annotation)


def _made(annotation: Any) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        schema = adapter.json_schema(schema_generator=_Quiet)
        return adapter, plain_schema(schema)
    except PydanticUserError as error:
        raise TypeError(str(error).splitlines()[0]) from error


# Most parameters are of a few types; a hundred tools then cost a hundred look-ups.
_cached = lru_cache(maxsize=1024, typed=True)(_made)


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with every ``$ref`` written out, without titles, ``const`` as an ``enum``.

    Raises:
        TypeError: it is recursive, and so cannot be written out.
    """
    plain: dict[str, Any] = _plain(schema, schema.get("$defs", {}), ())
    return plain


def _plain(schema: Any, definitions: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    if not isinstance(schema, Mapping):
        return schema  # additionalProperties may be a bool
    reference = schema.get("$ref")
    if reference is not None:
        name = str(reference).rpartition("/")[2]
        if name in inside:
            raise TypeError(f"the type '{name}' holds itself; its schema cannot be written out")
        found = _plain(definitions[name], definitions, (*inside, name))
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return {**found, **_plain(rest, definitions, inside)}
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _SCHEMAS:
            plain[key] = {one: _plain(of, definitions, inside) for one, of in value.items()}
        elif key in _SCHEMA:
            plain[key] = _plain(value, definitions, inside)
        elif key in _SCHEMA_LISTS:
            plain[key] = [_plain(one, definitions, inside) for one in value]
        elif key == "const":
            plain["enum"] = [value]
        elif key not in _DROPPED:
            plain[key] = value
    return plain


def problem_of_schema(schema: Any) -> str | None:
    """Why ``schema`` cannot be the parameters of a tool, in words; ``None`` if it can."""
    if not isinstance(schema, Mapping):
        return f"the parameters must be a JSON schema (a mapping), got {type(schema).__name__}"
    try:
        text = json.dumps(dict(schema), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return f"the parameters are not JSON ({error}), so no template can write them"
    if json.loads(text) != schema:
        return "the parameters change when they are written as JSON: use only str keys and lists"
    if schema and schema.get("type") != "object":
        return f"the parameters must have the type 'object', got {schema.get('type')!r}"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or any(type(v) is not dict for v in properties.values()):
        return "'properties' must map each parameter's name to its schema"
    required = schema.get("required", [])
    unknown = [one for one in required if one not in properties]
    if unknown:
        return f"'required' names {unknown[0]!r}, which 'properties' does not have"
    if "$ref" in text:
        return "the parameters hold a $ref, which templates do not look up: write it out"
    return None
