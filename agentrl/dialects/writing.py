"""The other direction: a message with calls as the text a model should say."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.dialects.calls import refuse
from agentrl.dialects.reading import Dialect

__all__ = ["format_call"]


def format_call(dialect: Dialect, message: Message, tools: Sequence[ToolSpec] = ()) -> str:
    """The content and calls of ``message`` in a dialect, for demonstrations and scripted policies.

    Reading it gives the message back: the same names and arguments in the same order, the same
    content but for white space around it. Reasoning is not written; renderers join it.

    Args:
        dialect: How to write.
        message: An assistant's message.
        tools: Their schemas give types to arguments that the dialect leaves untyped; without them
            only the names of such arguments are compared.

    Raises:
        DataError: the dialect cannot say this message (a value that holds its own closing tag,
            content that looks like a call or a thought), or a call in it has a problem.
    """
    text = dialect.write(message)
    found = dialect.read(text, tools)
    if found.content != message.content.strip() or found.thoughts or not found.thinking_closed:
        raise refuse(dialect.name, f"its content would be read as {found.content[:80]!r}")
    loosely = dialect.untyped and not tools
    if _told(found.calls, loosely) != _told(message.tool_calls, loosely):
        raise refuse(dialect.name, f"{text[:80]!r} would be read as other calls")
    return text


def _told(calls: Sequence[ToolCall], loosely: bool) -> list[tuple[object, ...]]:
    """What of ``calls`` reading must give back."""
    return [
        (call.name, list(call.arguments) if loosely else dict(call.arguments), call.problem)
        for call in calls
    ]
