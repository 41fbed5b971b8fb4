"""What a dialect finds in an answer, and what a dialect is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agentrl.core.message import Message, ToolCall, ToolSpec

__all__ = ["Dialect", "Reading", "number_calls"]


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer taken apart.

    Attributes:
        content: What was said outside thinking and calls, stripped.
        calls: The calls in the order they were made; one with a ``problem`` must not be run.
        thoughts: Thinking, piece by piece. Nothing in it is a call.
        thinking_closed: False: the answer ends inside a thought.
    """

    content: str
    calls: tuple[ToolCall, ...] = ()
    thoughts: tuple[str, ...] = ()
    thinking_closed: bool = True


@dataclass(frozen=True, slots=True)
class Dialect:
    """A way to write tool calls, in both directions.

    Attributes:
        name: As in ``agent.tool_dialect``.
        example: One call, for messages that tell a model what is expected.
        read: Answer and the tools on offer (their schemas type what the text leaves untyped) to a
            ``Reading``. Total: it raises on no text. Linear in the text.
        write: The text that says a message's content and calls. A DataError where the dialect
            cannot say it; ``format_call`` also makes sure that ``read`` gives it back.
        untyped: Arguments stand as bare text; only the tools' schemas can give them their types.
    """

    name: str
    example: str
    read: Callable[[str, Sequence[ToolSpec]], Reading]
    write: Callable[[Message], str]
    untyped: bool = False


def number_calls(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Calls with an id each: the text's own, else ``call_0``, ``call_1``, ... by position.

    An id that an earlier call of the same answer has makes the later call a problem: its result
    could not be told from the other's.
    """
    taken = {call.id for call in calls if call.id}
    seen: set[str] = set()
    numbered = []
    for position, call in enumerate(calls):
        named = call
        if not call.id or call.id in seen:
            new = f"call_{position}"
            while new in taken:
                new += "_"
            taken.add(new)
            twice = f"two calls of one answer have the id {call.id[:60]!r}; give each its own"
            problem = call.problem or (twice if call.id else None)
            arguments = {} if problem else call.arguments
            named = replace(call, id=new, arguments=arguments, problem=problem)
        seen.add(named.id)
        numbered.append(named)
    return tuple(numbered)
