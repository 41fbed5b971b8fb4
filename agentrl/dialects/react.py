"""ReAct: lines that begin with a label.

    Thought: I need the cat's age.
    Action: search
    Action Input: {"query": "cat"}

    Thought: Now I know.
    Final Answer: 9

``Thought:`` is thinking. What follows a line ``Observation:`` was made up by the model and is not
read: an environment observes, not the policy. The input is a JSON object (none: no arguments).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.dialects.calls import arguments_of, problem_call, sayable_calls, sayable_name
from agentrl.dialects.reading import Dialect, Reading, number_calls
from agentrl.dialects.strict_json import Unreadable, decode, encode, skip_blank
from agentrl.dialects.thinking import THOUGHT_END, Found, markers, scan, thought_end

__all__ = ["REACT"]

_INPUT = "Action Input:"
# A label begins its line, or stands right after a thought.
_BEGIN = "|".join(["^", *(f"(?<={one})" for one in THOUGHT_END.pattern.split("|"))])
_MARKERS = markers(rf"(?:{_BEGIN})[ \t]*(?:Action|Observation):", flags=re.MULTILINE)
_LABEL = re.compile(r"^[ \t]*(Thought|Final Answer):", re.MULTILINE)
_NAME = re.compile(r"[^\s<>{}\"]+")
_LINE_ENDS = re.compile(rf"[ \t\r]*(?:\n|\Z|(?={THOUGHT_END.pattern}))")


def _read(text: str, tools: Sequence[ToolSpec]) -> Reading:
    reading = scan(text, _MARKERS, _call)
    before, *labelled = _LABEL.split(reading.content)
    thoughts, answers = list(reading.thoughts), list[str]()
    for label, piece in zip(labelled[::2], labelled[1::2], strict=True):
        (thoughts if label == "Thought" else answers).append(piece.strip())
    calls = reading.calls
    if calls and answers:
        both = "the answer has an Action and a Final Answer; give one of them"
        calls = number_calls([problem_call(both)])
    content = "\n".join(answers or [before]).strip()
    return replace(reading, content=content, calls=calls, thoughts=tuple(thoughts))


def _call(text: str, found: re.Match[str]) -> Found:
    if found[0].endswith("Observation:"):
        ended = thought_end(text, found.end())  # then all of it was thought, and acting begins
        return Found(len(text) if ended is None else ended)
    name = _NAME.match(text, skip_blank(text, found.end()))
    if name is None or not _LINE_ENDS.match(text, name.end()):
        got = text[found.end() : found.end() + 24]
        raise Unreadable(
            f"expected the name of a tool, alone on its line, after Action:, got {got!r}"
        )
    label = skip_blank(text, name.end())
    if not text.startswith(_INPUT, label):
        return Found(name.end(), [ToolCall("", name[0], {})])
    begin = label + len(_INPUT)
    start = skip_blank(text, begin)
    if _LINE_ENDS.match(text, begin) and not text.startswith("{", start):
        return Found(begin, [ToolCall("", name[0], {})])
    arguments, end = decode(text, start)
    if not _LINE_ENDS.match(text, end):
        raise Unreadable(f"{text[end : end + 24]!r} follows the JSON of {_INPUT}")
    return Found(end, [arguments_of("", name[0], arguments)])


def _write(message: Message) -> str:
    calls = [
        f"Action: {sayable_name(one.name, _NAME, 'react')}\n{_INPUT} {encode(dict(one.arguments))}"
        for one in sayable_calls(message, "react")
    ]
    if not calls:
        return f"Final Answer: {message.content}"
    return "\n".join([message.content, *calls] if message.content else calls)


REACT = Dialect("react", f"Action: TOOL\n{_INPUT} {{...}}", _read, _write)
