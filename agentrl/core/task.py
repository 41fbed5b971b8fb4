"""Tasks: frozen data of one problem, identified by their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def content_hash(value: Any) -> str:
    """Hash of JSON-like data: 16 hex digits, equal for equal content on every machine.

    Mapping order does not matter; sequence order does. Floats are written by ``repr``.
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed from names and numbers; independent of scheduling, platform and hash seed.

    Episode seeds are ``derive_seed(run_seed, task_id, trial)``.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@dataclass(frozen=True, slots=True)
class Task:
    """One problem.

    Attributes:
        id: Content hash of the problem (never an index or a path).
        env: Name of the environment that plays it.
        split: Split it belongs to.
        payload: What the environment needs to build it (JSON-like).
        kind: Task type for reports (``pick_and_place_simple``); empty if there is only one.
    """

    id: str
    env: str
    split: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    kind: str = ""
