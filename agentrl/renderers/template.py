"""A model's own chat template, rendered so that what others said stays text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from agentrl.core.errors import ConfigError
from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.renderers.answer import THINK_CLOSE, THINK_OPEN
from agentrl.renderers.encoding import TextEncoder

__all__ = ["ChatTemplate"]

_ASKED = Message("user", ".")


class ChatTemplate:
    """Renders conversations with a tokenizer's template, or with one from a file.

    Control tokens that stand literally in a message are put aside before the template runs and
    encoded by their characters afterwards; only what the template itself writes is control. In
    messages of the user and of tools, and in what describes a tool, that holds for every added
    token (``<tool_call>``, ``<think>``), in system and assistant messages for the special ones but
    for marks of calls and thinking: a system prompt may speak of ``<think>``, and the assistant's
    are its own.

    Attributes:
        name: How messages call the template: the file, or the model's name.
        source: The Jinja text.
    """

    def __init__(
        self,
        tokenizer: Any,
        encoder: TextEncoder,
        *,
        file: str | Path | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._options = dict(options or {})
        self.name, self.source = _find(tokenizer, file)
        special = {text for text, one in encoder.added.items() if one in encoder.control_ids}
        self._any_added = _one_of(encoder.added)
        self._special = _one_of(special)
        probe = [_ASKED, Message("assistant", "said", reasoning="thought apart")]
        self._keeps_reasoning_apart = True
        self._keeps_reasoning_apart = "thought apart" in self.text(probe, opening=False)

    def ids(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> list[int]:
        """Ids of the whole conversation with the assistant's turn opened.

        Raises:
            ConfigError: the template cannot render it, or does not show a tool.
        """
        mark = _unused_mark(messages, tools)
        aside: list[str] = []
        dicts = [self._marked(message, aside, mark) for message in messages]
        specs = [self._aside(_tool_dict(tool), self._any_added, aside, mark) for tool in tools]
        rendered = self._render(dicts, specs, opening=True)
        hidden = [tool.name for tool in tools if tool.name not in rendered]
        if hidden:
            raise ConfigError(
                f"the chat template of '{self.name}' does not show the tool '{hidden[0]}' (of "
                f"{len(tools)}), so the model would never know of it: give "
                "agent.renderer.options.template a file with one that shows tools, or describe "
                "them in agent.system_prompt"
            )
        return self._encode(rendered, aside, mark)

    def ids_after_answer(self, messages: Sequence[Message]) -> list[int]:
        """Ids of what the template writes after an assistant's answer that ``messages`` follow.

        They come from rendering a made-up conversation around a placeholder for the answer, so the
        answer itself is never rendered.
        """
        mark = _unused_mark(messages, ())
        answer = f"{mark}answer{mark}"
        aside: list[str] = []
        dicts = [
            self._as_dict(_ASKED),
            {"role": "assistant", "content": answer},
            *(self._marked(message, aside, mark) for message in messages),
        ]
        _, found, after = self._render(dicts, [], opening=True).rpartition(answer)
        if not found:
            raise ConfigError(
                f"the chat template of '{self.name}' does not show what the assistant said, so no "
                "conversation can be continued; give agent.renderer.options.template another file"
            )
        return self._encode(after, aside, mark)

    def ids_of_answer(self, message: Message, closing: str) -> list[int]:
        """Ids of ``message`` as the template writes it between its opening and ``closing``.

        Raises:
            ConfigError: what it writes does not begin with its own opening.
        """
        mark = _unused_mark([message], ())
        aside: list[str] = []
        prompt = self.text([_ASKED], opening=True)
        dicts = [self._as_dict(_ASKED), self._marked(message, aside, mark)]
        whole = self._render(dicts, [], opening=False)
        answer, found, _ = whole[len(prompt) :].rpartition(closing)
        if not found or not whole.startswith(prompt):
            raise ConfigError(
                f"the chat template of '{self.name}' does not write the answer {message.content!r} "
                f"(reasoning: {message.reasoning!r}) after its own opening {self.opening!r}, but "
                f"{whole[-200:]!r}; it cannot be cloned with this template and its options"
            )
        return self._encode(answer, aside, mark)

    @cached_property
    def opening(self) -> str:
        """What the template writes to open the assistant's turn.

        Raises:
            ConfigError: it writes nothing.
        """
        before, opened = (self.text([_ASKED], opening=one) for one in (False, True))
        if opened == before or not opened.startswith(before):
            raise ConfigError(
                f"the chat template of '{self.name}' does not open the assistant's turn when "
                "asked to (add_generation_prompt); use a template of the ChatML kind"
            )
        return opened[len(before) :]

    def _encode(self, text: str, aside: Sequence[str], mark: str) -> list[int]:
        ids: list[int] = []
        for position, piece in enumerate(re.split(f"{mark}(\\d+){mark}", text)):
            if position % 2:
                ids += self._encoder.encode_text(aside[int(piece)])
            elif piece:
                ids += self._encoder.encode_scaffold(piece)
        return ids

    def text(self, messages: Sequence[Message], *, opening: bool) -> str:
        """The rendered text, control tokens included; for trusted messages."""
        return self._render([self._as_dict(message) for message in messages], [], opening)

    def _render(self, dicts: list[Any], specs: list[Any], opening: bool) -> str:
        try:
            return self._apply(dicts, specs, opening)
        except _template_errors() as error:
            self._blame_a_tool(specs)
            roles = ", ".join(one["role"] for one in dicts)
            raise ConfigError(
                f"the chat template of '{self.name}' cannot render messages with the roles "
                f"({roles}): {error}; give agent.renderer.options.template a file with one that can"
            ) from error

    def _apply(self, dicts: list[Any], specs: list[Any], opening: bool) -> str:
        rendered: str = self._tokenizer.apply_chat_template(
            dicts,
            tools=specs or None,
            chat_template=self.source,
            tokenize=False,
            add_generation_prompt=opening,
            **self._options,
        )
        return rendered

    def _blame_a_tool(self, specs: list[Any]) -> None:
        """Name the tool that the template cannot render even alone.

        Raises:
            ConfigError: there is one.
        """
        for spec in specs:
            try:
                self._apply([self._as_dict(_ASKED)], [spec], True)
            except _template_errors() as error:
                raise ConfigError(
                    f"the chat template of '{self.name}' cannot render the tool "
                    f"'{spec['function']['name']}': {error}; make its parameters simpler (str, "
                    "int, float, bool, Literal, lists of these), or give "
                    "agent.renderer.options.template a file with one that can"
                ) from error

    def _as_dict(self, message: Message) -> dict[str, Any]:
        content, reasoning = message.content, message.reasoning
        one: dict[str, Any] = {"role": message.role}
        if reasoning is not None and self._keeps_reasoning_apart:
            one["reasoning_content"] = reasoning
        elif reasoning is not None:
            content = f"{THINK_OPEN}\n{reasoning}\n{THINK_CLOSE}\n\n{content}"
        one["content"] = content
        if message.tool_calls:
            one["tool_calls"] = [_call_dict(call) for call in message.tool_calls]
        if message.tool_call_id is not None:
            one["tool_call_id"] = message.tool_call_id
        return one

    def _marked(self, message: Message, aside: list[str], mark: str) -> Any:
        outside = message.role in ("user", "tool")
        pattern = self._any_added if outside else self._special
        return self._aside(self._as_dict(message), pattern, aside, mark)

    def _aside(self, value: Any, pattern: re.Pattern[str], aside: list[str], mark: str) -> Any:
        """``value`` with every control token in its strings replaced by a numbered mark."""

        def replace(match: re.Match[str]) -> str:
            aside.append(match[0])
            return f"{mark}{len(aside) - 1}{mark}"

        if isinstance(value, str):
            return pattern.sub(replace, value)
        if isinstance(value, Mapping):
            return {
                self._aside(key, pattern, aside, mark): self._aside(one, pattern, aside, mark)
                for key, one in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._aside(one, pattern, aside, mark) for one in value]
        return value


def _template_errors() -> tuple[type[Exception], ...]:
    """What a template raises, and what its expressions do on values that they do not expect."""
    from jinja2 import TemplateError

    return (TemplateError, TypeError, ValueError, KeyError, AttributeError, RecursionError)


def _find(tokenizer: Any, file: str | Path | None) -> tuple[str, str]:
    if file is not None:
        try:
            return str(file), Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the chat template '{file}': {error}") from error
    name = str(getattr(tokenizer, "name_or_path", "") or "this tokenizer")
    try:
        return name, str(tokenizer.get_chat_template())
    except (AttributeError, ValueError) as error:
        raise ConfigError(
            f"'{name}' has no chat template of its own; give agent.renderer.options.template a "
            "Jinja file, or use renderer 'plain' with a tiny model"
        ) from error


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


def _one_of(texts: Iterable[str]) -> re.Pattern[str]:
    """A pattern for any of the texts, the longest first; it never matches if there are none."""
    longest_first = sorted(texts, key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _unused_mark(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
    """A private-use character that occurs nowhere in what is rendered."""
    everything = repr((messages, tools))  # where such characters are escaped, however deep
    for code in range(0xE000, 0xF900):
        if f"\\u{code:x}" not in everything:
            return chr(code)
    raise ConfigError("the messages use every private-use character; none is left for a mark")
