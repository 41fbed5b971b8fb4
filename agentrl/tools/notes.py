"""A notebook for one episode: what a policy wants to remember though its history is cut."""

from __future__ import annotations

from agentrl.core.errors import ToolError, nearest
from agentrl.tools.definition import tool

__all__ = ["Notes"]


class Notes:
    """Tools to write, read and list notes; each episode has its own.

    ``most_chars`` bounds all notes together.
    """

    def __init__(self, most_chars: int = 20_000) -> None:
        self._most_chars = most_chars
        self._notes: dict[str, str] = {}

    @tool(quick=True)
    def write_note(self, title: str, text: str) -> str:
        """Keep a note under a title; an older note of that title is replaced.

        Args:
            title: A short title to find it by.
            text: What to remember.
        """
        if not title.strip():
            raise ToolError("a note needs a title")
        others = sum(len(one) + len(kept) for one, kept in self._notes.items() if one != title)
        if others + len(title) + len(text) > self._most_chars:
            raise ToolError(
                f"no room: {others:,} of {self._most_chars:,} characters are taken by other notes"
            )
        self._notes[title] = text
        return f"noted '{title}'"

    @tool(read_only=True, quick=True)
    def read_note(self, title: str) -> str:
        """Read a note.

        Args:
            title: Its title.
        """
        if title not in self._notes:
            raise ToolError(f"no note '{title}'{nearest(title, self._notes)}. {self.list_notes()}")
        return self._notes[title]

    @tool(read_only=True, quick=True)
    def list_notes(self) -> str:
        """List the titles of all notes."""
        return f"Notes: {', '.join(self._notes)}" if self._notes else "There are no notes."
