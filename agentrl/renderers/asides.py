"""Text of others, put aside while a template runs: a mark takes the place of a control token."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentrl.core.errors import ConfigError
from agentrl.core.message import Message, ToolSpec
from agentrl.renderers.encoding import TextEncoder

__all__ = ["FIRST_MARK", "Asides", "any_of", "unused_mark"]

FIRST_MARK = "\ue000"


class Asides:
    """What was put aside in one rendering, by number.

    Args:
        mark: A character that occurs nowhere in what is rendered, see ``unused_mark``.
    """

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self._texts: list[str] = []

    def hide(self, value: Any, pattern: re.Pattern[str]) -> Any:
        """``value`` with every match in its strings, however deep, replaced by a numbered mark."""
        if isinstance(value, str):
            return pattern.sub(self._put, value)
        if isinstance(value, Mapping):
            return {self.hide(key, pattern): self.hide(one, pattern) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.hide(one, pattern) for one in value]
        return value

    def encode(self, text: str, encoder: TextEncoder) -> list[int]:
        """Ids of rendered text; what was put aside is encoded by its characters."""
        if not self._texts:
            return encoder.encode_scaffold(text) if text else []
        ids: list[int] = []
        for position, piece in enumerate(re.split(f"{self.mark}(\\d+){self.mark}", text)):
            if position % 2:
                ids += encoder.encode_text(self._texts[int(piece)])
            elif piece:
                ids += encoder.encode_scaffold(piece)
        return ids

    def _put(self, match: re.Match[str]) -> str:
        self._texts.append(match[0])
        return f"{self.mark}{len(self._texts) - 1}{self.mark}"


def any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """A pattern for any of the texts, the longest first; it never matches if there are none."""
    longest_first = sorted(texts, key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def unused_mark(messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> str:
    """A private-use character that occurs nowhere in what is rendered."""
    plain = all(one.content.isascii() and not one.reasoning for one in messages)
    if plain and not tools and not any(one.tool_calls for one in messages):
        return FIRST_MARK
    shown = repr((messages, tools))  # where such characters are escaped, however deep
    for code in range(ord(FIRST_MARK), 0xF900):
        if f"\\u{code:x}" not in shown:
            return chr(code)
    raise ConfigError("the messages use every private-use character; none is left for a mark")
