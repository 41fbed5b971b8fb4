"""Does a chat template leave alone what was already said? Asked before the first episode."""

from __future__ import annotations

import itertools

from agentrl.core.errors import ConfigError
from agentrl.core.message import Message, Role
from agentrl.renderers.answer import THINK_CLOSE, THINK_OPEN
from agentrl.renderers.template import ChatTemplate

__all__ = ["prefix_breaks"]

_THOUGHT = "a thought of the first turn"
_SHOWN = 60


def prefix_breaks(template: ChatTemplate, closing: str) -> tuple[str, ...]:
    """How rendering the next prompt changes the last prompt and its answer, case by case.

    Tried: an answer with and without thinking, followed by a user's message and by a tool's. What
    a template cannot render (a tool's message, where it knows none) is no break.

    Args:
        template: The template.
        closing: Text of the token that ends an answer.

    Returns:
        One sentence per case that breaks, naming the template and the place; empty if none does.
    """
    findings = []
    roles: tuple[Role, ...] = ("user", "tool")
    # An opening that ends thinking at once leaves no room for a thought.
    thoughts = (None,) if THINK_CLOSE in template.opening else (_THOUGHT, None)
    for role in roles:
        for reasoning in thoughts:
            try:
                found = _compare(template, role, reasoning, closing)
            except ConfigError:
                continue
            if found:
                findings.append(found)
    return tuple(findings)


def _compare(template: ChatTemplate, role: Role, reasoning: str | None, closing: str) -> str | None:
    asked = Message("user", "first message")
    answer = Message("assistant", "first answer", reasoning=reasoning)
    held = template.text([asked], opening=True) + _said(template, answer) + closing
    following = template.text([asked, answer, Message(role, "second message")], opening=False)
    if following.startswith(held):
        return None
    pairs = zip(held, following, strict=False)
    place = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    what = "with" if reasoning else "without"
    return (
        f"the chat template of '{template.name}' {_kind(held, following, reasoning)} when a "
        f"{role} message follows an answer {what} thinking: at character {place} the record goes "
        f"on {held[place : place + _SHOWN]!r}, the next prompt "
        f"{following[place : place + _SHOWN]!r}"
    )


def _said(template: ChatTemplate, answer: Message) -> str:
    """What a policy says after the opening, which may already have begun its thinking."""
    thinking = f"{answer.reasoning or ''}\n{THINK_CLOSE}\n\n"
    if template.opening.rstrip().endswith(THINK_OPEN):
        return f"{thinking}{answer.content}"
    return f"{THINK_OPEN}\n{thinking}{answer.content}" if answer.reasoning else answer.content


def _kind(held: str, following: str, reasoning: str | None) -> str:
    if reasoning and reasoning not in following:
        return "drops the thinking of earlier turns"
    if following.count(THINK_OPEN) > held.count(THINK_OPEN):
        return "inserts an empty think block"
    if following.count(THINK_OPEN) < held.count(THINK_OPEN):
        return "drops the think block that its opening wrote"
    return "changes what was already said"
