"""The renderer of tiny models: text and three control tokens, nothing else.

A conversation is one stream of tokens::

    text <|next|> text <|turn|> action <|end|> text <|turn|> action <|end|> ...

``<|turn|>`` opens the policy's turn, ``<|end|>`` ends its action, ``<|next|>`` stands between two
messages of others. Two control tokens a step are the least that can be: an action and an
observation both have any length. Roles of others are not told apart.

Tools are a first message of one line each, ``search(query: string, limit?: integer): Find a
thing.``; calls are written in ``dialect``, results are messages in call order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentrl.core.errors import ConfigError
from agentrl.core.message import Message, ParseFailure, ToolSpec
from agentrl.dialects.action import ACTION
from agentrl.dialects.choice import find_dialect
from agentrl.dialects.writing import format_call
from agentrl.renderers.answer import join_reasoning, read_answer
from agentrl.renderers.encoding import TextEncoder

__all__ = ["CONTROL_TOKENS", "END", "NEXT", "PAD", "TURN", "PlainRenderer", "describe_tools"]

PAD, END, TURN, NEXT = CONTROL_TOKENS = ("<|pad|>", "<|end|>", "<|turn|>", "<|next|>")


class PlainRenderer:
    """Append-only renderer for tiny models; their tokenizer comes from ``models.train_tokenizer``.

    Rendering a whole conversation and rendering it piece by piece give the same ids.

    Args:
        tokenizer: Its tokenizer.
        dialect: How calls are written: a name, ``module:attr`` or a ``Dialect``.

    Raises:
        ConfigError: the tokenizer lacks the control tokens, or there is no such dialect.
    """

    append_only = True

    def __init__(self, tokenizer: Any, *, dialect: Any = ACTION) -> None:
        self.dialect = find_dialect(dialect, tokenizer=tokenizer)
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
        """Ids of a whole prompt: the tools, the messages, the opening of the policy's turn."""
        described = [Message("system", describe_tools(tools))] if tools else []
        return [*self._render([*described, *messages]), self._turn]

    def extend(self, messages: Sequence[Message], *, closed: bool) -> list[int]:
        """Ids that follow a sampled answer: its closing if need be, ``messages``, the opening."""
        closing = [] if closed else [self._end]
        return [*closing, *self._render(messages), self._turn]

    def parse(self, token_ids: Sequence[int]) -> Message | ParseFailure:
        return read_answer(token_ids, encoder=self._encoder, stop_token_ids=(self._end,))

    def encode_action(self, message: Message) -> list[int]:
        """Ids that say ``message``, its calls included, and end the answer.

        Raises:
            DataError: the dialect cannot say its calls.
        """
        if message.tool_calls:
            message = replace(message, content=format_call(self.dialect, message))
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


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """One line a tool: its name, its parameters with their types, what it does."""
    return "\n".join(_line(tool) for tool in tools)


def _line(tool: ToolSpec) -> str:
    properties = tool.parameters.get("properties") or {}
    required = tool.parameters.get("required") or ()
    shown = [
        f"{name}{'' if name in required else '?'}: {_type(schema)}"
        for name, schema in properties.items()
    ]
    return f"{tool.name}({', '.join(shown)}): {tool.description}"


def _type(schema: Any) -> str:
    """The type of a parameter in a word: JSON's names, or the values that it may have."""
    if not isinstance(schema, Mapping):
        return "any"
    if isinstance(schema.get("enum"), list):
        return "|".join(json.dumps(one) for one in schema["enum"])
    if isinstance(schema.get("anyOf"), list):
        return "|".join(_type(one) for one in schema["anyOf"])
    declared = schema.get("type")
    return "|".join(declared) if isinstance(declared, list) else str(declared or "any")
