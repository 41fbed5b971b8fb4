"""The renderer of chat models: their own template, without ever encoding an answer again.

Two ways to carry a conversation on:

``append`` (the default): the next prompt is the last prompt, the sampled ids as they are, and the
ids of what is new: the closing of the answer if its limit cut it off, the new messages, the next
opening. It is append-only by construction, so an episode is one training row. The policy then sees
its own earlier thinking even where its template would drop it.

``template``: every prompt is the template's rendering of the whole conversation, as an inference
server makes it. Where the template rewrites history (drops thinking), a new segment begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from agentrl.core.errors import ConfigError
from agentrl.core.message import Message, ParseFailure, ToolSpec
from agentrl.renderers.answer import THINK_OPEN, read_answer
from agentrl.renderers.encoding import TextEncoder
from agentrl.renderers.prefix import prefix_breaks
from agentrl.renderers.template import ChatTemplate

__all__ = ["ChatRenderer"]

_ASKED = Message("user", ".")


class ChatRenderer:
    """Renders with a chat template of the ChatML kind (Qwen2.5, Qwen3 and relatives).

    Args:
        tokenizer: A fast tokenizer of transformers.
        history: ``append`` or ``template``, see the module.
        template: Jinja file to use in place of the tokenizer's own template.
        template_options: Variables of the template, such as ``{"enable_thinking": False}``.
        call_tokens: Special tokens of the tokenizer that are marks of tool calls, where a dialect
            of your own needs them; those of the dialects that come with agentrl are known.

    Raises:
        ConfigError: no template, an unknown ``history``, or a template whose answers no control
            token ends.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        history: Literal["append", "template"] = "append",
        template: str | Path | None = None,
        template_options: Mapping[str, Any] | None = None,
        call_tokens: Sequence[str] = (),
    ) -> None:
        if history not in ("append", "template"):
            raise ConfigError(
                f"renderer chat: history={history!r} is unknown; expected 'append' or 'template'"
            )
        self.history = history
        self._encoder = TextEncoder(tokenizer, call_tokens=call_tokens)
        self._template = ChatTemplate(
            tokenizer, self._encoder, file=template, options=template_options
        )
        opening = self._template.opening.rstrip()
        self._think_opened = opening.endswith(THINK_OPEN)
        self._closing = self._find_closing()
        eos = getattr(tokenizer, "eos_token_id", None)
        self._stops = tuple(dict.fromkeys([self._closing, *([] if eos is None else [int(eos)])]))

    @property
    def append_only(self) -> bool:
        return self.history == "append"

    @property
    def template_source(self) -> str:
        """The Jinja text of the chat template."""
        return self._template.source

    @property
    def stop_token_ids(self) -> Sequence[int]:
        """The token that closes an answer in the template, then the tokenizer's end of text."""
        return self._stops

    @cached_property
    def prefix_breaks(self) -> tuple[str, ...]:
        """Where the template, rendering a whole conversation, changes what was already said.

        In words that name the template; empty if it never does. With ``history="append"`` it
        says how the policy's view differs from the template's, with ``"template"`` why segments
        fork.
        """
        return prefix_breaks(self._template, self._encoder.decode([self._closing]))

    def start(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> list[int]:
        """Ids of a whole prompt, the opening of the assistant's turn included."""
        return self._template.ids(messages, tools)

    def extend(self, messages: Sequence[Message], *, closed: bool) -> list[int]:
        """Ids that follow a sampled answer: its closing if need be, ``messages``, the opening."""
        ids = self._template.ids_after_answer(messages)
        return ids[ids.index(self._closing) + 1 :] if closed else ids

    def parse(self, token_ids: Sequence[int]) -> Message | ParseFailure:
        """The assistant message; its tool calls, if any, are still text of the content."""
        return read_answer(
            token_ids,
            encoder=self._encoder,
            stop_token_ids=self._stops,
            think_opened=self._think_opened,
        )

    def encode_action(self, message: Message) -> list[int]:
        """Ids the template writes for ``message`` after the opening, up to its closing token.

        Raises:
            ConfigError: the template writes it otherwise than after its own opening.
        """
        closing = self._encoder.decode([self._closing])
        return [*self._template.ids_of_answer(message, closing), self._closing]

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._encoder.decode(token_ids)

    def _find_closing(self) -> int:
        after = self._template.ids_after_answer([_ASKED])
        closing = next((one for one in after if one in self._encoder.control_ids), None)
        if closing is None or self._encoder.decode([closing]) in self._template.opening:
            raise ConfigError(
                f"the chat template of '{self._template.name}' ends answers with no control token "
                f"(after an answer it writes {self._encoder.decode(after)!r}), so answers cannot "
                "be told from what follows; use a template of the ChatML kind"
            )
        return closing
