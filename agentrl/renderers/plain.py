"""The renderer of tiny models: text and three control tokens, nothing else.

A conversation is one stream of tokens::

    text <|next|> text <|turn|> action <|end|> text <|turn|> action <|end|> ...

``<|turn|>`` opens the policy's turn, ``<|end|>`` ends its action, ``<|next|>`` stands between two
messages of others. Two control tokens a step are the least that can be: an action and an
observation both have any length. Roles of others are not told apart, and tools are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentrl.core.errors import ConfigError
from agentrl.core.message import Message, ParseFailure, ToolSpec
from agentrl.renderers.answer import join_reasoning, read_answer
from agentrl.renderers.encoding import TextEncoder

__all__ = ["CONTROL_TOKENS", "END", "NEXT", "PAD", "TURN", "PlainRenderer"]

PAD, END, TURN, NEXT = CONTROL_TOKENS = ("<|pad|>", "<|end|>", "<|turn|>", "<|next|>")


class PlainRenderer:
    """Append-only renderer for tiny models; their tokenizer comes from ``models.train_tokenizer``.

    Rendering a whole conversation and rendering it piece by piece give the same ids.
    """

    append_only = True

    def __init__(self, tokenizer: Any) -> None:
        self._encoder = TextEncoder(tokenizer)
        missing = [token for token in CONTROL_TOKENS if token not in self._encoder.added]
        if missing:
            raise ConfigError(
                f"the tokenizer lacks the control tokens {', '.join(missing)} of the plain "
                "renderer; train it with agentrl.models.train_tokenizer, or use renderer 'chat'"
            )
        self._end, self._turn, self._next = (
            self._encoder.added[token] for token in (END, TURN, NEXT)
        )

    @property
    def stop_token_ids(self) -> Sequence[int]:
        return (self._end,)

    def start(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> list[int]:
        """Ids of a whole prompt, the opening of the policy's turn included.

        Raises:
            ConfigError: ``tools`` are given; a plain stream cannot describe them.
        """
        if tools:
            names = ", ".join(tool.name for tool in tools)
            raise ConfigError(
                f"the plain renderer cannot describe tools ({names}); use renderer 'chat', or an "
                "environment whose actions are plain text"
            )
        return [*self._render(messages), self._turn]

    def extend(self, messages: Sequence[Message], *, closed: bool) -> list[int]:
        """Ids that follow a sampled answer: its closing if need be, ``messages``, the opening."""
        closing = [] if closed else [self._end]
        return [*closing, *self._render(messages), self._turn]

    def parse(self, token_ids: Sequence[int]) -> Message | ParseFailure:
        return read_answer(token_ids, encoder=self._encoder, stop_token_ids=(self._end,))

    def encode_action(self, message: Message) -> list[int]:
        return [*self._encoder.encode_text(join_reasoning(message)), self._end]

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._encoder.decode(token_ids)

    def _render(self, messages: Sequence[Message]) -> list[int]:
        ids: list[int] = []
        after_text = False
        for message in messages:
            if message.role == "assistant":
                ids += [self._turn, *self.encode_action(message)]
            else:
                ids += [self._next] if after_text else []
                ids += self._encoder.encode_text(message.content)
            after_text = message.role != "assistant"
        return ids
