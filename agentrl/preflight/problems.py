"""What is wrong with a run, collected: who mends a run file wants to hear all of it at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from agentrl.core.errors import AgentRLError, ConfigError, DataError

__all__ = ["Problems"]

T = TypeVar("T")
HEADING = "this run cannot work:"


class Problems:
    """Collects the expected errors of checks; no text stands there twice."""

    def __init__(self) -> None:
        self._found: dict[str, AgentRLError] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def attempt(self, check: Callable[[], T]) -> T | None:
        """What ``check`` returns; ``None`` if it found a problem, which is kept."""
        try:
            return check()
        except AgentRLError as error:
            self._found.setdefault(str(error), error)
            return None

    def add(self, text: str) -> None:
        """Keep one problem."""
        self._found.setdefault(text, ConfigError(text))

    def refuse(self) -> None:
        """Raise what was found, if anything was.

        Raises:
            AgentRLError: of the kind of the only problem; of several a ``DataError`` if the data
                alone is wrong, and a ``ConfigError`` otherwise.
        """
        errors = list(self._found.values())
        if not errors:
            return
        only_data = all(isinstance(one, DataError) for one in errors)
        kind = type(errors[0]) if len(errors) == 1 else DataError if only_data else ConfigError
        listed = ("- " + text.replace("\n", "\n  ") for text in self._found)
        raise kind("\n".join([HEADING, *listed])) from errors[0]
