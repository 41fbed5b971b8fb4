"""A model's own chat template, rendered so that what others said stays text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from agentrl.core.errors import ConfigError
from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.renderers.answer import THINK_CLOSE, THINK_OPEN
from agentrl.renderers.asides import Asides, any_of, unused_mark
from agentrl.renderers.encoding import TextEncoder
from agentrl.renderers.jinja import JinjaTemplate
from agentrl.renderers.treatment import treatment_of

__all__ = ["ASKED", "ChatTemplate"]

ASKED = Message("user", "what is asked")
_MADE_UP = "what is said"


class ChatTemplate:
    """Renders conversations with a template.

    Control tokens that stand literally in a message are put aside before the template runs and
    encoded by their characters afterwards; only what the template itself writes is control. In
    messages of the user and of tools, and in what describes a tool, that holds for every added
    token (``<tool_call>``, ``<think>``), in system and assistant messages for the special ones but
    for marks of calls and thinking: a system prompt may speak of ``<think>``, and the assistant's
    are its own.

    Attributes:
        jinja: The template itself. name, source: as there.
        treatment: How messages are arranged for it.

    Raises:
        ConfigError: the template does not show what was said, does not open the assistant's turn,
            or wants an answer to hold control tokens of its own.
    """

    def __init__(self, jinja: JinjaTemplate, encoder: TextEncoder) -> None:
        self.jinja = jinja
        self.name, self.source = jinja.name, jinja.source
        self._encoder = encoder
        special = {text for text, one in encoder.added.items() if one in encoder.control_ids}
        self._any_added = any_of(encoder.added)
        self._special = any_of(special)
        self.treatment = treatment_of(jinja)
        self._beginnings: dict[str, list[dict[str, Any]]] = {}  # by the mark of the answer
        self.lead = self._find_lead()

    def ids(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> list[int]:
        """Ids of the whole conversation with the assistant's turn opened.

        A conversation that the template refuses as a whole (one wants calls apart from what the
        assistant said, and they are in its text) is put together from its beginning, its answers,
        and what the template writes after each.

        Raises:
            ConfigError: the template cannot render it, or does not show a tool.
        """
        try:
            return self._whole(messages, tools)
        except _Refused as error:
            first = next((at for at, one in enumerate(messages) if one.role == "assistant"), 0)
            if not first:
                raise ConfigError(str(error)) from error
            return self._pieces(messages, tools, first)

    def ids_after_answer(self, messages: Sequence[Message]) -> list[int]:
        """Ids of what the template writes after an assistant's answer that ``messages`` follow.

        They come from rendering a made-up conversation around a placeholder for the answer, so the
        answer itself is never rendered.
        """
        asides = Asides(unused_mark(messages))
        return asides.encode(self._after(messages, asides), self._encoder)

    def text_after_answer(self, messages: Sequence[Message]) -> str:
        """The text of ``ids_after_answer``; for trusted messages."""
        return self._after(messages, Asides(unused_mark(messages)))

    def ids_of_answer(self, message: Message, closing: str) -> list[int]:
        """Ids of ``message`` as the template writes it between its opening and ``closing``.

        A template that writes thinking of an answer otherwise than its opening has begun it is not
        followed: what is said goes on from the opening.

        Raises:
            ConfigError: it cannot be said after this opening.
        """
        asides = Asides(unused_mark([message]))
        prompt = self.text([ASKED], opening=True)
        dicts = [self._as_dict(ASKED), self._marked(message, asides)]
        whole = self.jinja.render(self.treatment.arrange(dicts), opening=False)
        if whole.startswith(prompt):
            answer, found, _ = whole[len(prompt) :].rpartition(closing)
            return asides.encode(answer if found else whole[len(prompt) :], self._encoder)
        if message.tool_calls or (message.reasoning and self._ends_thinking):
            raise ConfigError(
                f"the chat template of '{self.name}' does not write the answer {message.content!r} "
                f"(reasoning: {message.reasoning!r}) after its own opening {self.opening!r}, but "
                f"{whole[-200:]!r}; it cannot be cloned with this template and its options"
            )
        hidden = asides.hide(self.said(message), self._special)
        return asides.encode(hidden, self._encoder)

    def said(self, message: Message) -> str:
        """What a policy says after the opening, which may already have begun its thinking."""
        if self.opening.rstrip().endswith(THINK_OPEN):
            return f"{message.reasoning or ''}\n{THINK_CLOSE}\n\n{message.content}"
        if message.reasoning is None:
            return f"{self.lead}{message.content}"
        return f"{THINK_OPEN}\n{message.reasoning}\n{THINK_CLOSE}\n\n{message.content}"

    @cached_property
    def opening(self) -> str:
        """What the template writes after a user's message to open the assistant's turn.

        It begins with the end of the user's own turn.
        """
        return self.text([ASKED], opening=True).rpartition(ASKED.content)[2]

    def text(
        self, messages: Sequence[Message], *, opening: bool, tools: Sequence[ToolSpec] = ()
    ) -> str:
        """The rendered text, control tokens included; for trusted messages."""
        dicts = self.treatment.arrange([self._as_dict(message) for message in messages])
        return self.jinja.render(dicts, [_tool_dict(tool) for tool in tools], opening=opening)

    def encode(self, text: str) -> list[int]:
        """Ids of text that the template wrote; for trusted messages."""
        return self._encoder.encode_scaffold(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._encoder.decode(token_ids)

    def upto_control(self, text: str) -> str:
        """``text`` up to its first control token and with it; empty if it holds none."""
        found = self._special.search(text)
        return text[: found.end()] if found else ""

    @property
    def _ends_thinking(self) -> bool:
        return THINK_CLOSE in self.opening

    def _whole(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        asides = Asides(unused_mark(messages, tools))
        dicts = self.treatment.arrange([self._marked(message, asides) for message in messages])
        specs = [asides.hide(_tool_dict(tool), self._any_added) for tool in tools]
        rendered = self.jinja.attempt(dicts, specs, opening=True)
        if rendered is None:
            try:
                rendered = self.jinja.render(dicts, specs, opening=True)
            except ConfigError as error:
                raise _Refused(str(error)) from error
        hidden = [tool.name for tool in tools if tool.name not in rendered]
        if hidden:
            raise ConfigError(
                f"the chat template of '{self.name}' does not show the tool '{hidden[0]}' (of "
                f"{len(tools)}), so the model would never know of it: give "
                "agent.renderer.options.template a file with one that shows tools (for models of "
                "the ChatML kind such as SmolLM2, 'smollm2' comes with agentrl), or describe "
                "them in agent.system_prompt"
            )
        return asides.encode(rendered, self._encoder)

    def _pieces(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], first: int
    ) -> list[int]:
        try:
            ids = self._whole(messages[:first], tools)
        except _Refused as error:
            raise ConfigError(str(error)) from error
        position = first
        while position < len(messages):
            end = position + 1
            while end < len(messages) and messages[end].role != "assistant":
                end += 1
            asides = Asides(unused_mark([messages[position]]))
            answer = asides.hide(self.said(messages[position]), self._special)
            ids += asides.encode(answer, self._encoder)
            ids += self.ids_after_answer(messages[position + 1 : end])
            position = end
        return ids

    def _after(self, messages: Sequence[Message], asides: Asides) -> str:
        answer = f"{asides.mark}answer{asides.mark}"
        shown = [self._marked(message, asides) for message in messages]
        dicts = [*self._made_up(answer), *self.treatment.arrange(shown, first=False)]
        _, found, after = self.jinja.render(dicts, opening=True).rpartition(answer)
        if not found:
            raise ConfigError(
                f"the chat template of '{self.name}' does not show what the assistant said, so no "
                "conversation can be carried on; give agent.renderer.options.template another file"
            )
        return after

    def _made_up(self, answer: str) -> list[dict[str, Any]]:
        if answer not in self._beginnings:
            said = {"role": "assistant", "content": answer}
            self._beginnings[answer] = self.treatment.arrange([self._as_dict(ASKED), said])
        return self._beginnings[answer]

    def _find_lead(self) -> str:
        """What the template writes between its opening and an answer without thinking.

        Raises:
            ConfigError: control tokens, so that an answer would be more than one text; or nothing
                but white space tells where the assistant begins.
        """
        whole = self.text([ASKED, Message("assistant", _MADE_UP)], opening=False)
        between = whole.rpartition(_MADE_UP)[0].rpartition(ASKED.content)[2]
        if not self.opening.strip():
            raise ConfigError(
                f"the chat template of '{self.name}' does not open the assistant's turn when "
                "asked to (add_generation_prompt); use a template of the ChatML kind"
            )
        if not between.startswith(self.opening):
            return ""  # it writes thinking otherwise than its opening has begun it
        lead = between[len(self.opening) :]
        if self._special.search(lead):
            raise ConfigError(
                f"the chat template of '{self.name}' writes {lead!r} before what the assistant "
                "says: an answer is made of blocks with control tokens of their own, which the "
                "renderer 'chat' cannot read; write a renderer of your own for it "
                "(agent.renderer.name: 'module:Class')"
            )
        return re.sub(rf"^\s*{THINK_OPEN}\s*{THINK_CLOSE}\s*", "", lead)

    def _as_dict(self, message: Message) -> dict[str, Any]:
        content, reasoning = message.content, message.reasoning
        key = self.treatment.reasoning_key
        one: dict[str, Any] = {"role": message.role}
        if reasoning is not None and key is not None:
            one[key] = reasoning
        elif reasoning is not None:
            content = f"{THINK_OPEN}\n{reasoning}\n{THINK_CLOSE}\n\n{content}"
        one["content"] = content
        if message.tool_calls:
            one["tool_calls"] = [_call_dict(call) for call in message.tool_calls]
        if message.tool_call_id is not None:
            one["tool_call_id"] = message.tool_call_id
        return one

    def _marked(self, message: Message, asides: Asides) -> dict[str, Any]:
        outside = message.role in ("user", "tool")
        pattern = self._any_added if outside else self._special
        marked: dict[str, Any] = asides.hide(self._as_dict(message), pattern)
        return marked


class _Refused(Exception):
    """The template raised on a whole conversation."""


def _tool_dict(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
        },
    }


def _call_dict(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": dict(call.arguments)},
    }
