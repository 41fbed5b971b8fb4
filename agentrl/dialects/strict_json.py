"""JSON as a tool may get it: exact, or a reason why not. Nothing is guessed and nothing mended.

Python's own decoder reads numbers, escapes and Unicode exactly; what it lets through and a tool
must never get is refused here: doubled keys, NaN and infinities (``1e400`` too), halves of
surrogate pairs, nesting that later code would not survive. Linear in the length of the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["MAX_DEPTH", "Unreadable", "decode", "describe", "encode", "skip_blank"]

MAX_DEPTH = 64
_BLANK = re.compile(r"[ \t\r\n]*")
_SURROGATE = re.compile(r"\\u[dD][89abABcdefCDEF]|[\ud800-\udfff]")
_NEAR = 24


class Unreadable(ValueError):
    """A call that cannot be read; the message says why, in words for the model."""


def decode(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON value that begins at ``start``, and the position after it.

    Raises:
        Unreadable: there is none, or one that no tool must get, see the module.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        near = text[max(start, error.pos - _NEAR) : error.pos + _NEAR]
        where = f"at character {error.pos - start + 1} of it, near {near!r}"
        raise Unreadable(f"invalid JSON: {error.msg} {where}") from None
    except RecursionError:
        raise _too_deep() from None
    except Unreadable:
        raise
    except ValueError:  # int() refuses thousands of digits
        raise Unreadable("invalid JSON: a number has more digits than can be read") from None
    brackets = text.count("{", start, end) + text.count("[", start, end)
    if brackets > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise _too_deep()
    if _SURROGATE.search(text, start, end) and _has_lone_surrogate(value):
        raise Unreadable(
            "invalid JSON: a string holds half of a surrogate pair (\\ud800 to \\udfff alone), "
            "which is no character"
        )
    return value, end


def encode(value: Any) -> str:
    """JSON text of ``value`` as chat templates write it: one line, characters as they are."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def skip_blank(text: str, position: int) -> int:
    """The position of the first character at or after ``position`` that is no white space."""
    found = _BLANK.match(text, position)
    assert found is not None
    return found.end()


def describe(value: Any) -> str:
    """A JSON value in a few words for an error message."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return f"the string {value if len(value) <= _NEAR else value[:_NEAR] + '...'!r}"
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list) else f"{str(value).lower():.24}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise Unreadable(f"invalid JSON: the key {key[:60]!r} appears twice in an object")
            seen.add(key)
    return found


def _constant(name: str) -> None:
    raise Unreadable(f"invalid JSON: {name} is no JSON value")


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Unreadable(f"invalid JSON: the number {text[:_NEAR]} is too large")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)


def _too_deep() -> Unreadable:
    return Unreadable(f"invalid JSON: it is nested more than {MAX_DEPTH} levels deep")


def _deeper_than(value: Any, depth: int) -> bool:
    """Whether containers are nested more than ``depth`` deep; without recursion."""
    level = [value]
    for _ in range(depth):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _has_lone_surrogate(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False
