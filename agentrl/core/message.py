"""Messages between the policy, the environment, its tools and its user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that the model made. ``arguments`` is a JSON object.

    ``problem`` says, in words for the model, why the call cannot be run (its JSON is broken, say);
    it is then never dispatched but answered with that text. ``None``: nothing is wrong with it.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message. ``reasoning`` is what the model thought, kept apart from ``content``."""

    role: Role
    content: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What the model is told about a tool. ``parameters`` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """Sampled text that is not an action. It is the policy's fault, never a crash.

    ``kind`` is a short stable word for statistics (``no_action``, ``truncated``, ...), ``message``
    says in words what was expected, ``content`` is the text as decoded.
    """

    kind: str
    message: str
    content: str
