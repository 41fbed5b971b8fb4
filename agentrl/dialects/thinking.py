"""Thinking told apart from acting: one pass over an answer, from left to right.

A thought begins with ``<think>``, ``<thinking>`` or ``[THINK]`` and ends with its own closing, the
first one. A closing that nothing opened ends a thought too, one that the prompt has begun:
everything before it was thought. An opening or closing inside a call (in a string argument) belongs
to the call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agentrl.core.message import ToolCall
from agentrl.dialects.reading import Reading, number_calls
from agentrl.dialects.strict_json import Unreadable

__all__ = [
    "THINK_CLOSE",
    "THINK_OPEN",
    "THOUGHT_END",
    "Found",
    "markers",
    "scan",
    "split_thinking",
    "thought_end",
]

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"
_CLOSING = {THINK_OPEN: THINK_CLOSE, "<thinking>": "</thinking>", "[THINK]": "[/THINK]"}
THOUGHT_END = re.compile("|".join(map(re.escape, _CLOSING.values())))


@dataclass(frozen=True, slots=True)
class Found:
    """What stands at an opening: ``calls`` and ``text`` (content), up to position ``end``."""

    end: int
    calls: Sequence[ToolCall] = ()
    text: str = ""


Read = Callable[[str, re.Match[str]], Found]


def markers(*openings: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern for thinking and for the openings of calls (regular expressions)."""
    thinking = [re.escape(one) for pair in _CLOSING.items() for one in pair]
    return re.compile("|".join([*thinking, *openings]), flags)


_THINKING = markers()


@dataclass(slots=True)
class _Parts:
    """What was found so far. ``raw`` is everything outside thoughts, calls as they stand."""

    spoken: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    closed: bool = True
    said: bool = False
    said_after_call: bool = False

    def say(self, text: str) -> None:
        self.raw.append(text)
        self._speak(text)

    def take(self, one: Found, raw: str) -> None:
        self.raw.append(raw)
        self._speak(one.text)
        self.calls += one.calls

    def was_thought(self) -> None:
        """Nothing so far was said: the prompt had opened a thought that ends here."""
        self.thoughts.append("".join(self.raw).strip())
        self.spoken, self.calls, self.raw = [], [], []
        self.said = self.said_after_call = False

    def _speak(self, text: str) -> None:
        self.spoken.append(text)
        if text and not text.isspace():
            self.said = True
            self.said_after_call = bool(self.calls)


def scan(
    text: str, pattern: re.Pattern[str], read: Read, *, later: re.Pattern[str] | None = None
) -> Reading:
    """Take an answer apart.

    Args:
        text: The answer.
        pattern: From ``markers``.
        read: Called for every opening outside thoughts, returns what stands there. If it raises
            ``Unreadable`` the call becomes one with that problem and the rest of the answer is not
            read: where a broken call ends nobody knows, so what follows may be part of it.
        later: For dialects whose calls have no marks of their own and must be all that is said:
            the pattern once anything was said. Text after a call then makes it a problem.
    """
    parts = _Parts()
    _scan(text, pattern, read, parts, later)
    calls = parts.calls
    if later is not None and parts.said_after_call:
        calls = [ToolCall("", "", {}, "text follows the call; a call must be all that is said")]
    content = "".join(parts.spoken).strip()
    return Reading(content, number_calls(calls), tuple(filter(None, parts.thoughts)), parts.closed)


def split_thinking(text: str) -> tuple[list[str], list[str], bool]:
    """Thoughts, the pieces of text outside them, and whether the last thought is closed."""
    parts = _Parts()
    _scan(text, _THINKING, _no_call, parts, None)
    return parts.thoughts, parts.spoken, parts.closed


def thought_end(text: str, position: int) -> int | None:
    """Where a closing stands that nothing from ``position`` on has opened; ``None``: nowhere."""
    while found := _THINKING.search(text, position):
        closing = _CLOSING.get(found[0])
        if closing is None:
            return found.start()
        end = text.find(closing, found.end())
        if end < 0:
            return None
        position = end + len(closing)
    return None


def _scan(
    text: str,
    pattern: re.Pattern[str],
    read: Read,
    parts: _Parts,
    later: re.Pattern[str] | None,
) -> None:
    position = 0
    while found := (later if later and parts.said else pattern).search(text, position):
        marker, start = found[0], found.start()
        if start > position:
            parts.say(text[position:start])
            position = start
            if later and parts.said:
                continue  # what looked like an opening may be none after words
        position = found.end()
        if marker in _CLOSING:
            end = text.find(_CLOSING[marker], position)
            parts.closed = end >= 0
            parts.thoughts.append(text[position : end if end >= 0 else len(text)].strip())
            position = end + len(_CLOSING[marker]) if end >= 0 else len(text)
        elif THOUGHT_END.fullmatch(marker):
            parts.was_thought()
        else:
            try:
                one = read(text, found)
            except Unreadable as problem:
                _give_up(parts, text, start, str(problem))
                return
            parts.take(one, text[start : one.end])
            position = one.end
    parts.say(text[position:])


def _give_up(parts: _Parts, text: str, start: int, problem: str) -> None:
    """What cannot be read is the last call. If a thought ends later, all of it may be thought."""
    if THOUGHT_END.search(text, start):
        parts.was_thought()
    parts.calls.append(ToolCall("", "", {}, problem))


def _no_call(text: str, found: re.Match[str]) -> Found:
    raise AssertionError("a pattern of thinking alone has no openings")
