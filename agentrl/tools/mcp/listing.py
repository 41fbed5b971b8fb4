"""The tools that a server lists, each held against what it says of itself, as tools of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.core.errors import ConfigError, ToolError, nearest
from agentrl.core.message import ToolSpec
from agentrl.tools.mcp.connection import Connection
from agentrl.tools.mcp.content import text_of
from agentrl.tools.schema import plain_schema, problem_of_schema

__all__ = ["Listed", "McpTool", "read_listing"]

_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_DIALECT = "$schema"  # says which JSON Schema it is; no template shows it
_OPEN = {"additionalProperties", "patternProperties", "unevaluatedProperties"}
SHOWN_CHARS = 500


@dataclass(frozen=True, slots=True)
class Listed:
    """A tool of a server: what the model is told, its name there, what checks its arguments."""

    spec: ToolSpec
    remote: str
    validator: Any


class McpTool:
    """A tool of a server, for one session."""

    def __init__(self, listed: Listed, connection: Connection, deadline_s: float | None) -> None:
        self.spec = listed.spec
        self.deadline_s = deadline_s
        self.origin = f"{connection.label}, its '{listed.remote}'"
        self._listed = listed
        self._connection = connection

    async def __call__(self, /, **arguments: Any) -> str:
        """Call it there.

        Raises:
            ToolError: arguments that its schema does not allow, or an error that it answered.
            EnvError: the server is gone, or what it answered is not as it said.
        """
        from jsonschema.exceptions import best_match

        # JSON Schema allows what it does not name; a policy that misspells a name must learn of it.
        schema = self.spec.parameters
        for name in arguments:
            if name not in schema["properties"] and not _OPEN & schema.keys():
                hint = nearest(name, schema["properties"])
                raise ToolError(f"the arguments do not fit: there is no '{name}'{hint}")
        wrong = best_match(self._listed.validator.iter_errors(arguments))
        if wrong is not None:
            where = "".join(f"{one}: " for one in wrong.absolute_path)
            raise ToolError(f"the arguments do not fit: {where}{_short(wrong.message)}")
        result = await self._connection.call(self._listed.remote, arguments)
        text = text_of(result)
        if result.is_error:
            raise ToolError(text or "the tool failed and gave no reason")
        return text


def read_listing(
    found: Sequence[Any],
    label: str,
    *,
    prefix: str,
    chosen: Sequence[str] | None,
    read_only: Sequence[str] | bool | None,
) -> tuple[Listed, ...]:
    """Check what a server lists; see ``McpServer`` for the options.

    Raises:
        ConfigError: no tool, two of one name, a schema that is none, a name that is not there.
    """
    names = [one.name for one in found]
    named = [*(chosen or ()), *(read_only if isinstance(read_only, Sequence) else ())]
    for name in named:
        if name not in names:
            raise ConfigError(
                f"{label} has no tool '{name}'{nearest(name, names) or '.'} "
                f"It has: {', '.join(names) or 'none'}."
            )
    listed: dict[str, Listed] = {}
    for tool in found:
        if chosen is not None and tool.name not in chosen:
            continue
        one = _read(tool, label, prefix, read_only)
        twin = listed.setdefault(one.spec.name, one)
        if twin is not one:
            raise ConfigError(
                f"{label} has two tools called '{one.spec.name}' ('{twin.remote}' and "
                f"'{one.remote}' there); choose one with tools: [...]"
            )
    if not listed:
        raise ConfigError(f"{label} offers no tool")
    return tuple(listed.values())


def _read(tool: Any, label: str, prefix: str, read_only: Sequence[str] | bool | None) -> Listed:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    given: Mapping[str, Any] = tool.input_schema
    problem: str | None
    schema: dict[str, Any] = {}
    try:
        # Kept as it is where it can be: plain_schema writes out what templates cannot look up.
        schema = plain_schema({key: one for key, one in given.items() if key != _DIALECT})
        problem = problem_of_schema(schema)
        if problem is None and "type" not in schema:
            problem = "the parameters must have the type 'object', and have none"
    except (TypeError, KeyError, ValueError, AttributeError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error}"
    kind = validator_for(given, default=Draft202012Validator)
    if problem is None:
        try:
            kind.check_schema(schema)
        except SchemaError as error:
            problem = error.message
    if problem is not None:
        raise ConfigError(
            f"{label}: what it says of its tool '{tool.name}' is no schema of a tool's arguments "
            f"({_short(problem)}); mend the server, or leave the tool out with tools: [...]"
        )
    if isinstance(read_only, bool):
        harmless = read_only
    elif read_only is not None:
        harmless = tool.name in read_only
    else:
        harmless = tool.annotations is not None and tool.annotations.read_only_hint is True
    name = (prefix + _UNFIT.sub("_", tool.name))[:64]
    title = tool.title or (tool.annotations.title if tool.annotations else None)
    about = (tool.description or title or tool.name).strip()
    spec = ToolSpec(name, about, {"properties": {}, **schema}, harmless)
    return Listed(spec, tool.name, kind(schema))


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "..."
