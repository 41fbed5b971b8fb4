"""A user who says the same things in the same order, whatever is answered."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.core.errors import ConfigError
from agentrl.core.message import Message

__all__ = ["ScriptedUser"]


class ScriptedUser:
    """Says ``lines`` one after the other, then leaves.

    Args:
        lines: At least one; the first opens the episode.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        if isinstance(lines, str) or not lines or not all(one.strip() for one in lines):
            raise ConfigError(f"a scripted user needs a list of lines with text, got {lines!r}")
        self._lines = tuple(lines)

    async def reply(self, conversation: Sequence[Message]) -> Message | None:
        said = sum(one.role == "user" for one in conversation)
        return Message("user", self._lines[said]) if said < len(self._lines) else None
