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

import datetime
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from agentrl.core.errors import ConfigError
from agentrl.core.message import Message, ParseFailure, ToolSpec
from agentrl.renderers.answer import THINK_OPEN, read_answer
from agentrl.renderers.encoding import CALL_TOKENS, TextEncoder
from agentrl.renderers.jinja import JinjaTemplate
from agentrl.renderers.prefix import TemplateReport, examine
from agentrl.renderers.template import ASKED, ChatTemplate

__all__ = ["ChatRenderer"]

_CONSEQUENCES = {
    "append": (
        "history: append keeps the tokens as they were sampled, so the policy goes on seeing them "
        "and no new segment begins; a server that renders with this template shows it otherwise"
    ),
    "template": "history: template begins a new segment there, one training row more, counted",
}


class ChatRenderer:
    """Renders with a model's own chat template.

    Args:
        tokenizer: A fast tokenizer of transformers.
        history: ``append`` or ``template``, see the module.
        template: In place of the tokenizer's own template: a Jinja file, or the name of one that
            comes with agentrl (``smollm2``).
        template_options: Variables of the template, such as ``{"enable_thinking": False}``.
        call_tokens: Special tokens of the tokenizer that are marks of tool calls, where a dialect
            of your own needs them; those of the dialects that come with agentrl are known.
        date: The day (``2026-01-31``) for a template that writes today's date into the prompt;
            without it the day on which the renderer is made.

    Raises:
        ConfigError: no template; an unknown ``history`` or ``date``; a template that does not show
            what was said, does not open the assistant's turn, or ends answers with no token.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        history: Literal["append", "template"] = "append",
        template: str | Path | None = None,
        template_options: Mapping[str, Any] | None = None,
        call_tokens: Sequence[str] = (),
        date: str | datetime.date | None = None,
    ) -> None:
        if history not in ("append", "template"):
            raise ConfigError(
                f"renderer chat: history={history!r} is unknown; expected 'append' or 'template'"
            )
        self.history = history
        self._encoder = TextEncoder(tokenizer, call_tokens=call_tokens)
        jinja = JinjaTemplate(tokenizer, template=template, options=template_options, date=date)
        self._template = ChatTemplate(jinja, self._encoder)
        self._closings = self._find_closings()
        eos = getattr(tokenizer, "eos_token_id", None)
        ends = [*self._closings.values(), *([] if eos is None else [int(eos)])]
        self._stops = tuple(dict.fromkeys(ends))
        self._think_opened = self._template.opening.rstrip().endswith(THINK_OPEN)

    @property
    def append_only(self) -> bool:
        return self.history == "append"

    @property
    def template_source(self) -> str:
        """The Jinja text of the chat template."""
        return self._template.source

    @property
    def stop_token_ids(self) -> Sequence[int]:
        """The tokens that close an answer in the template, then the tokenizer's end of text."""
        return self._stops

    @cached_property
    def report(self) -> TemplateReport:
        """What the template does to a conversation, and what is done about it."""
        return examine(self._template)

    @cached_property
    def prefix_breaks(self) -> tuple[str, ...]:
        """Where the template, rendering a whole conversation, changes what was already said.

        In words that name the template and what will happen; empty if it never does. With
        ``history="append"`` it says how the policy's view differs from the template's, with
        ``"template"`` why segments fork.
        """
        consequence = _CONSEQUENCES[self.history]
        spaces = () if self.append_only else self.report.spaces
        return tuple(f"{one.text}. {consequence}" for one in (*self.report.breaks, *spaces))

    @cached_property
    def treatments(self) -> tuple[str, ...]:
        """How messages are arranged for the template, in one sentence; empty if they are not."""
        found = "; ".join(self.report.treatment)
        return (f"the chat template of '{self._template.name}' {found}",) if found else ()

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What else the template does that breaks no prefix, a sentence each."""
        name = self._template.name
        return tuple(f"the chat template of '{name}' {one}" for one in self.report.notes)

    def start(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> list[int]:
        """Ids of a whole prompt, the opening of the assistant's turn included."""
        return self._template.ids(messages, tools)

    def extend(self, messages: Sequence[Message], *, closed: bool) -> list[int]:
        """Ids that follow a sampled answer: its closing if need be, ``messages``, the opening."""
        ids = self._template.ids_after_answer(messages)
        if not closed:
            return ids
        stops = self._closings.values()
        end = next((position for position, one in enumerate(ids) if one in stops), -1)
        return ids[end + 1 :]

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
        calls = message.tool_calls or any(one in message.content for one in CALL_TOKENS)
        closing = self._closings["tool" if calls else "user"]
        text = self._encoder.decode([closing])
        return [*self._template.ids_of_answer(message, text), closing]

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._encoder.decode(token_ids)

    def _find_closings(self) -> dict[str, int]:
        """The token that closes an answer, by the role of what follows.

        It is the same one but in the GLM family, where the token that opens the next turn is what
        ends an answer.
        """
        closings = {"user": self._closing([ASKED])}
        tool = Message("tool", "what it gave", tool_call_id="call_0")
        closings["tool"] = self._closing([tool])
        return closings

    def _closing(self, messages: Sequence[Message]) -> int:
        after = self._template.ids_after_answer(messages)
        closing = next((one for one in after if one in self._encoder.control_ids), None)
        if closing is None:
            raise ConfigError(
                f"the chat template of '{self._template.name}' ends answers with no control token "
                f"(after an answer it writes {self._encoder.decode(after)!r}), so answers cannot "
                "be told from what follows; use a template of the ChatML kind"
            )
        return closing
