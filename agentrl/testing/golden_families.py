"""Which function computes the golden cases of which ``algo``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentrl.testing.golden_gigpo import gigpo

__all__ = ["FAMILIES"]

FAMILIES: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]] = {
    "gigpo": gigpo,
}
