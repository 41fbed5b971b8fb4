"""The renderer of engines that take messages instead of tokens: the conversation is written down.

The engine reads it back (``agentrl.completions.written``). So an endpoint that has no tokens of
ours is played through the same loop, and its records are kept, shown and compared like all others.
Nothing of it can be trained on: the ids are not the model's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.completions.written import END, text_of, write_messages, write_tools, written_from
from agentrl.core.message import Message, ParseFailure, ToolSpec
from agentrl.dialects.openai import OPENAI

__all__ = ["MessagesRenderer"]


class MessagesRenderer:
    """Append-only. For ``engine: openai``.

    Args:
        tokenizer: Ignored: there is none.
    """

    append_only = True
    dialect = OPENAI

    def __init__(self, tokenizer: object = None) -> None:
        del tokenizer

    @property
    def stop_token_ids(self) -> Sequence[int]:
        return (END,)

    def start(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> list[int]:
        return [*write_tools(tools), *write_messages(messages)]

    def extend(self, messages: Sequence[Message], *, closed: bool) -> list[int]:
        return [*([] if closed else [END]), *write_messages(messages)]

    def parse(self, token_ids: Sequence[int]) -> Message | ParseFailure:
        text = self.decode(token_ids)
        try:
            messages, _ = written_from(token_ids)
            (message,) = messages
        except (ValueError, KeyError, TypeError):
            return ParseFailure("no_action", "this is no message that was written down", text)
        return message

    def encode_action(self, message: Message) -> list[int]:
        return [*write_messages([message]), END]

    def decode(self, token_ids: Sequence[int]) -> str:
        return text_of(token_ids)
