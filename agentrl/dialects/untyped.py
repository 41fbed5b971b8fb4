"""Arguments that a dialect writes as bare text get their type from the tool's JSON schema.

``75001`` may be a number or a postal code: only the schema knows. Where it allows a string the
text is the string; where it allows none the text is read as JSON (``True`` and ``None`` too, as
templates print them); where there is no schema, or the text is no such JSON, it stays text and the
tool's own validation says what was wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentrl.core.message import ToolSpec
from agentrl.dialects.calls import decode_all
from agentrl.dialects.strict_json import Unreadable

__all__ = ["typed_arguments"]

_WORDS = {"True": ("boolean", True), "False": ("boolean", False), "None": ("null", None)}
_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def typed_arguments(
    name: str, arguments: Mapping[str, str], tools: Sequence[ToolSpec]
) -> dict[str, Any]:
    """``arguments`` with each text read as the schema of the tool ``name`` wants it."""
    schema = next((tool.parameters for tool in tools if tool.name == name), {})
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    return {key: _typed(text, known.get(key), schema) for key, text in arguments.items()}


def _typed(text: str, wanted: Any, schema: Mapping[str, Any]) -> Any:
    types = _types(wanted, schema)
    if not types or "string" in types:
        return text
    word = text.strip()
    if word in _WORDS and _WORDS[word][0] in types:
        return _WORDS[word][1]
    try:
        return decode_all(text)
    except Unreadable:
        return text


def _types(wanted: Any, schema: Mapping[str, Any]) -> set[str]:
    """Every type that a schema allows, as far as it says so; empty where it allows any."""
    found: set[str] = set()
    followed: set[str] = set()
    waiting = [wanted]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, Mapping):
            continue  # a server may call anything a schema
        declared = one.get("type")
        found.update(_texts([declared] if isinstance(declared, str) else declared))
        values = [*_items(one.get("enum")), *([one["const"]] if "const" in one else [])]
        found.update(_NAMES.get(type(value), "object") for value in values)
        for choices in ("anyOf", "oneOf", "allOf"):
            waiting += _items(one.get(choices))
        reference = one.get("$ref")
        if isinstance(reference, str) and reference not in followed:
            followed.add(reference)
            definitions = schema.get("$defs")
            if isinstance(definitions, Mapping):
                waiting.append(definitions.get(reference.removeprefix("#/$defs/")))
    return found


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _texts(values: Any) -> Iterable[str]:
    return (one for one in _items(values) if isinstance(one, str))
