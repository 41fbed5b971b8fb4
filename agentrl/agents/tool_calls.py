"""What a policy said, to the calls that an environment with tools gets. Pure; never raises on text.

Three outcomes. Calls: the environment gets them, in the order they were made. No call at all: what
was said is a plain message (a final answer, a word to the user). Neither, because the answer was
cut, ends inside a thought, is empty or holds a call that cannot be read: the environment gets a
call that cannot be run, with a ``problem`` for the model to read. Nothing is repaired.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from agentrl.core.message import Message, ParseFailure, ToolCall, ToolSpec
from agentrl.dialects.reading import Dialect, Reading

__all__ = ["PARSE_ERROR", "failed_call", "read_calls", "read_chat"]

PARSE_ERROR = "parse_error"
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_calls(
    message: Message, dialect: Dialect, tools: Sequence[ToolSpec] = (), *, truncated: bool = False
) -> tuple[Message, str]:
    """The calls in an assistant message, as the environment gets them.

    Args:
        message: What the renderer made of the sampled ids; its reasoning may already be apart.
        dialect: How this model writes calls.
        tools: What is on offer; schemas give types to what a dialect leaves untyped. Whether a
            tool of the name exists is not looked at: the environment answers that.
        truncated: The answer was cut by its length limit. Then nothing in it is executed, not even
            calls that were complete: what was to follow might have taken them back.

    Returns:
        The message with its calls apart from its content and all thinking as reasoning, and the
        parse status: ``ok``, ``parse_error`` (a call has a problem; the others stand), or
        ``truncated``, ``unclosed_think``, ``empty_action``, whose one call has a problem.
    """
    if truncated:
        return failed_call(_cut(message.content)), "truncated"
    if not message.content.isascii() and _SURROGATE.search(message.content):
        what = "the answer holds half of a surrogate pair, which is no character"
        return failed_call(what, dialect), PARSE_ERROR
    reading = dialect.read(message.content, tools)
    reasoning = _joined(message.reasoning, reading)
    if not reading.thinking_closed:
        what = "the answer ends inside its thinking"
        return replace(failed_call(what, dialect), reasoning=reasoning), "unclosed_think"
    if not reading.calls and not reading.content and not message.tool_calls:
        what = "the answer is empty: call a tool, or say something"
        return replace(failed_call(what, dialect), reasoning=reasoning), "empty_action"
    calls = tuple(_explained(call, dialect) for call in (*message.tool_calls, *reading.calls))
    status = PARSE_ERROR if any(call.problem for call in calls) else "ok"
    action = replace(message, content=reading.content, reasoning=reasoning, tool_calls=calls)
    return action, status


def read_chat(
    answer: Message | ParseFailure,
    dialect: Dialect,
    tools: Sequence[ToolSpec] = (),
    *,
    truncated: bool = False,
) -> tuple[Message, str]:
    """What was said, as a server of chat completions gives it: nothing is refused or explained.

    Arguments as of ``read_calls``.

    Returns:
        The message and the parse status. Calls stand apart from the content if there are tools and
        all of them can be read; else the text is the content as it is (``parse_error`` where it
        was meant to hold calls). A truncated answer is text too, with one call that has a
        ``problem``: whoever asked has to know that it was cut.
    """
    if isinstance(answer, ParseFailure):
        said, status = Message("assistant", answer.content), answer.kind
    elif truncated or not tools:
        said, status = answer, "ok"
    else:
        said, status = read_calls(answer, dialect, tools)
        if any(call.problem for call in said.tool_calls):
            said, status = answer, "ok" if status == "empty_action" else status
    if truncated:
        cut = ToolCall("call_0", "", {}, _cut(said.content))
        return replace(said, tool_calls=(cut,)), "truncated"
    return said, status


def failed_call(problem: str | ParseFailure, dialect: Dialect | None = None) -> Message:
    """An assistant message whose one call cannot be run: the way to tell the model what was wrong.

    Args:
        problem: In words, or the renderer's.
        dialect: Its example is added.
    """
    if isinstance(problem, ParseFailure):
        cut = problem.kind == "truncated"
        problem = _cut(problem.content) if cut else problem.message
    call = ToolCall("call_0", "", {}, problem)
    return Message("assistant", "", tool_calls=(_explained(call, dialect),))


def _cut(content: str) -> str:
    return (
        f"the answer was cut at its length limit, after {len(content):,} characters, before it "
        "ended; say less at once"
    )


def _explained(call: ToolCall, dialect: Dialect | None) -> ToolCall:
    if call.problem is None:
        return call
    expected = f" Expected: {dialect.example}" if dialect else ""
    return replace(call, problem=f"{call.problem}. Nothing was executed for it.{expected}")


def _joined(reasoning: str | None, reading: Reading) -> str | None:
    thoughts = [*([] if reasoning is None else [reasoning]), *reading.thoughts]
    return "\n".join(thoughts) if thoughts else None
