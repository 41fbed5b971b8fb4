"""Checks of strategies' options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentrl.core.errors import ConfigError, nearest

__all__ = ["chosen", "share", "whole"]


def whole(strategy: str, name: str, value: Any, *, least: int) -> int:
    """A whole number of at least ``least``.

    Raises:
        ConfigError: it is something else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(
            f"strategy '{strategy}': {name} must be a whole number of at least {least}, got "
            f"{value!r}"
        )
    return value


def share(strategy: str, name: str, value: Any, *, least: float = 0.0, most: float = 1.0) -> float:
    """A number from ``least`` to ``most``.

    Raises:
        ConfigError: it is something else.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value <= most:
        raise ConfigError(
            f"strategy '{strategy}': {name} must be a number from {least:g} to {most:g}, got "
            f"{value!r}"
        )
    return float(value)


def chosen(strategy: str, name: str, value: Any, known: Sequence[str]) -> str:
    """One of the ``known`` words.

    Raises:
        ConfigError: it is another.
    """
    if value not in known:
        raise ConfigError(
            f"strategy '{strategy}': unknown {name} {value!r}{nearest(str(value), known) or '.'} "
            f"It may be: {', '.join(known)}."
        )
    return str(value)
