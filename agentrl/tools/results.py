"""What a tool returned, as text for the model; or that it is no answer, as an error of the tool."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from agentrl.core.errors import EnvError, ToolError
from agentrl.core.protocols import ToolResult
from agentrl.tools.text import clean

__all__ = ["NOTHING", "result_of"]

NOTHING = "(no output)"


def result_of(value: Any, label: str, *, may_be_none: bool = True) -> ToolResult:
    """The cleaned result that ``value`` is.

    Text and ``ToolResult`` are taken as they are; numbers, bools, lists, dicts, dataclasses and
    models as JSON; bytes as UTF-8; ``None`` as ``(no output)``, where the tool promises no value.

    Args:
        value: What the tool returned.
        label: The tool, for messages.
        may_be_none: Whether its return type allows ``None``.

    Raises:
        ToolError: bytes that are no text.
        EnvError: what no tool should return: a coroutine, a generator, an object without a JSON
            form, ``None`` against its own annotation.
    """
    if isinstance(value, ToolResult):
        if not isinstance(value.content, str):
            kind = _kind(value.content)
            raise EnvError(f"{label} returned a ToolResult whose content is no text, but {kind}")
        answer = None if value.answer is None else clean(str(value.answer))
        return replace(value, content=clean(value.content) or NOTHING, answer=answer)
    return ToolResult(clean(_text(value, label, may_be_none)) or NOTHING)


def _text(value: Any, label: str, may_be_none: bool) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        if may_be_none:
            return NOTHING
        raise EnvError(
            f"{label} returned None, and its return type promises a value: a 'return' is missing, "
            "or annotate it '-> None'"
        )
    if isinstance(value, bytes | bytearray | memoryview):
        return _decoded(bytes(value))
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()  # or Python warns, later and elsewhere, that nobody awaited it
        raise EnvError(f"{label} returned {_kind(value)} that nobody awaits: an 'await' is missing")
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise EnvError(f"{label} returned {_kind(value)}; return the whole text")
    try:
        return json.dumps(to_jsonable_python(value), ensure_ascii=False)
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        raise EnvError(
            f"{label} returned {_kind(value)}, which has no JSON form ({error}); return str, a "
            "number, a list, a dict, a dataclass or a ToolResult"
        ) from error


def _decoded(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise ToolError(
            f"the result is {len(value):,} bytes that are no UTF-8 text; they cannot be shown"
        ) from None


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
