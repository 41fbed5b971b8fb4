"""A renderer for tests: one id per character, so that prompts can be read and written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.core.message import Message, ParseFailure, ToolSpec

OPEN = 0x110000  # begins the assistant's turn
STOP = 0x110001  # ends it
_SHOWN = {OPEN: "<", STOP: ">"}


@dataclass(frozen=True, slots=True)
class CharacterRenderer:
    """Ids are code points; two more open (shown as ``<``) and end (``>``) the assistant's turn.

    ``append_only=False`` makes the loop render the whole conversation anew at every step.
    """

    append_only: bool = True

    @property
    def stop_token_ids(self) -> Sequence[int]:
        return (STOP,)

    def start(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> list[int]:
        ids: list[int] = []
        for message in messages:
            if message.role == "assistant":
                ids += [OPEN, *map(ord, message.content), STOP]
            else:
                ids += map(ord, message.content)
        return [*ids, OPEN]

    def extend(self, messages: Sequence[Message], *, closed: bool) -> list[int]:
        return [*([] if closed else [STOP]), *self.start(messages)]

    def parse(self, token_ids: Sequence[int]) -> Message | ParseFailure:
        return Message("assistant", "".join(chr(one) for one in token_ids if one < OPEN))

    def encode_action(self, message: Message) -> list[int]:
        return [*map(ord, message.content), STOP]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(_SHOWN.get(one) or chr(one) for one in token_ids)
