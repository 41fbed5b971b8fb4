"""What a docstring says of a callable and of each of its parameters (Google style)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Documented", "read_docstring"]

_ARGS = re.compile(r"(?:Args|Arguments|Parameters):\s*$")
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+|$)(.*)")


@dataclass(frozen=True, slots=True)
class Documented:
    """A docstring taken apart: everything but ``Args:``, and the text of each argument."""

    description: str
    arguments: Mapping[str, str]


def read_docstring(text: str | None) -> Documented:
    """Take a docstring apart.

    The section ``Args:`` (or ``Arguments:``, ``Parameters:``) goes up to the next line that is not
    indented. An entry is ``name: text`` or ``name (type): text``; its text may go on in lines that
    are indented further. All that stands outside the section is the description.
    """
    description: list[str] = []
    section: list[str] = []
    inside = False
    for line in inspect.cleandoc(text or "").splitlines():
        if line and not line[0].isspace():
            inside = _ARGS.match(line) is not None
            if inside:
                continue
        (section if inside else description).append(line)
    paragraphs = re.sub(r"\n{3,}", "\n\n", "\n".join(description)).strip()
    return Documented(paragraphs, _entries(section))


def _entries(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    name, margin = "", None
    for line in lines:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        margin = indent if margin is None else margin
        entry = _ENTRY.match(line.strip()) if indent <= margin else None
        if entry is not None:
            name = entry[1]
            found[name] = [entry[2].strip()]
        elif name:
            found[name].append(line.strip())
    return {name: " ".join(filter(None, parts)) for name, parts in found.items()}
