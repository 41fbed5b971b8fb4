"""What a policy said, to the command an environment gets. Pure; never raises on what it is given.

Two formats. ``bare``: the whole answer is the command. ``tagged``: the command stands in
``<action>...</action>``, after thinking in ``<think>...</think>`` that nobody executes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from agentrl.core.message import Message, ParseFailure
from agentrl.renderers.answer import THINK_CLOSE, THINK_OPEN

__all__ = ["ACTION_CLOSE", "ACTION_OPEN", "ActionFormat", "format_action", "parse_action"]

ActionFormat = Literal["bare", "tagged"]
ACTION_OPEN = "<action>"
ACTION_CLOSE = "</action>"


def parse_action(
    message: Message, action_format: ActionFormat, *, truncated: bool = False
) -> Message | ParseFailure:
    """The command in an assistant message.

    Args:
        message: What the renderer made of the sampled ids; its reasoning may already be apart.
        action_format: ``bare`` or ``tagged``. Tagged: the last complete ``<action>`` outside
            thinking counts; an action drafted inside ``<think>`` is never executed.
        truncated: The answer was cut by its length limit. Then it is never executed, whatever it
            holds, and never repaired.

    Returns:
        The message with the bare command, stripped, as content and all thinking as reasoning; or
        a ParseFailure of kind ``truncated``, ``unclosed_think``, ``unclosed_action``,
        ``no_action`` or ``empty_action``.
    """
    if truncated:
        return _failure("truncated", "the answer hit its length limit", message)
    if action_format == "bare":
        command = message.content.strip()
        if not command:
            return _failure("empty_action", "expected a command, got an empty answer", message)
        return replace(message, content=command)
    thoughts, spoken, closed = _apart(message.content)
    if not closed:
        return _failure("unclosed_think", f"{THINK_OPEN} is never closed", message)
    found = next((one for one in map(_last_action, reversed(spoken)) if one is not None), None)
    if found is None:
        opened = any(ACTION_OPEN in one for one in spoken)
        what = f"{ACTION_OPEN} without {ACTION_CLOSE} after it" if opened else "none"
        kind = "unclosed_action" if opened else "no_action"
        return _failure(kind, f"expected {ACTION_OPEN}command{ACTION_CLOSE}, got {what}", message)
    if not found.strip():
        return _failure("empty_action", f"nothing stands in {ACTION_OPEN}{ACTION_CLOSE}", message)
    if message.reasoning is not None:
        thoughts.insert(0, message.reasoning)
    reasoning = "\n".join(thoughts) if thoughts else None
    return replace(message, content=found.strip(), reasoning=reasoning)


def format_action(
    command: str, action_format: ActionFormat, *, reasoning: str | None = None
) -> Message:
    """The assistant message that says ``command``; ``parse_action`` reads it back.

    For demonstrations and scripted policies.
    """
    tagged = action_format == "tagged"
    content = f"{ACTION_OPEN}{command}{ACTION_CLOSE}" if tagged else command
    return Message("assistant", content, reasoning=reasoning)


def _apart(text: str) -> tuple[list[str], list[str], bool]:
    """Thoughts, the pieces of text outside them, and whether the last thought is closed.

    Text before a ``</think>`` that nothing opened is a thought: the prompt may have opened it.
    """
    thoughts: list[str] = []
    spoken: list[str] = []
    while text:
        before, opening, after = text.partition(THINK_OPEN)
        unopened, stray, rest = before.partition(THINK_CLOSE)
        if stray:
            thoughts.append("".join((*spoken, unopened)).strip())
            spoken, text = [], rest + opening + after
            continue
        spoken.append(before)
        if not opening:
            break
        thought, closing, text = after.partition(THINK_CLOSE)
        thoughts.append(thought.strip())
        if not closing:
            return thoughts, spoken, False
    return thoughts, spoken, True


def _last_action(text: str) -> str | None:
    """The text of the last ``<action>`` that is closed, up to its own closing."""
    start = text.rfind(ACTION_OPEN, 0, max(text.rfind(ACTION_CLOSE), 0))
    if start < 0:
        return None
    return text[start + len(ACTION_OPEN) :].partition(ACTION_CLOSE)[0]


def _failure(kind: str, what: str, message: Message) -> ParseFailure:
    return ParseFailure(kind, f"{what}; nothing was executed", message.content)
