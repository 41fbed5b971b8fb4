"""What a chat template can take, tried once, and how messages are arranged so that it takes them.

Nothing an environment says may be lost: a template that knows no tool results, no system message or
no two messages of one role in a row would raise or, worse, leave the text out. Each such message is
given to it in a form that it shows, the same form at every step.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.core.errors import ConfigError
from agentrl.renderers.answer import THINK_OPEN
from agentrl.renderers.jinja import JinjaTemplate

__all__ = ["Treatment", "treatment_of"]

_ASKED: Mapping[str, Any] = {"role": "user", "content": "the question"}
_SAID: Mapping[str, Any] = {"role": "assistant", "content": "the answer"}
_PLAIN_ID = re.compile(r"[a-zA-Z0-9]{9}")


@dataclass(frozen=True, slots=True)
class Treatment:
    """How messages are arranged for one template.

    Attributes:
        parts: Content is a list of parts, as templates of models that see images want it.
        reasoning_key: Where the template reads an answer's thinking; ``None``: it stands in the
            content, between ``<think>`` and ``</think>``.
        system: The template shows a system message at the beginning; else it is put before the
            first message of the user.
        later_system, tool: It shows system messages further on, and results of tools; else they are
            shown as messages of the user.
        joined: Pairs of roles that it does not take one after the other: the second message is
            added to the first, after an empty line.
        short_ids: It wants ids of calls of nine letters and digits.
        why_no_tool: Why results of tools are not shown as such, if they are not.
    """

    parts: bool = False
    reasoning_key: str | None = None
    system: bool = True
    later_system: bool = True
    tool: bool = True
    joined: frozenset[tuple[str, str]] = frozenset()
    short_ids: bool = False
    why_no_tool: str = "shows no results of tools"

    def arrange(
        self, messages: Sequence[dict[str, Any]], *, first: bool = True
    ) -> list[dict[str, Any]]:
        """The messages as the template takes them.

        Args:
            messages: In the form of transformers, all content a string.
            first: The conversation begins with them; else they follow an answer.
        """
        arranged: list[dict[str, Any]] = []
        put_before = False
        for position, message in enumerate(messages):
            begins = first and position == 0
            one = self._as_shown(message, begins=begins)
            last = arranged[-1] if arranged else None
            if last is not None and (put_before or (last["role"], one["role"]) in self.joined):
                arranged[-1] = {**one, **last, "content": f"{last['content']}\n\n{one['content']}"}
            else:
                arranged.append(one)
            put_before = begins and one["role"] != message["role"]
        return [self._with_parts(one) for one in arranged] if self.parts else arranged

    def sentences(self) -> tuple[str, ...]:
        """What is done to messages, in words; empty where the template takes them as they are."""
        return tuple(self._sentences())

    def _sentences(self) -> Iterator[str]:
        if not self.system:
            yield "knows no system message: it is put before the first message of the user"
        if not self.tool:
            yield f"{self.why_no_tool}: they are shown as messages of the user"
        if self.joined:
            pairs = ", ".join(f"{one} after {other}" for other, one in sorted(self.joined))
            yield f"wants roles to alternate: messages in a row are joined into one ({pairs})"
        if self.short_ids:
            yield "wants ids of calls of nine letters and digits: other ids are replaced by a hash"

    def _as_shown(self, message: dict[str, Any], *, begins: bool) -> dict[str, Any]:
        role = message["role"]
        known = {"system": self.system if begins else self.later_system, "tool": self.tool}
        if not known.get(role, True):
            return {"role": "user", "content": message["content"]}
        return self._with_short_ids(message) if self.short_ids else message

    def _with_parts(self, message: dict[str, Any]) -> dict[str, Any]:
        return {**message, "content": [{"type": "text", "text": message["content"]}]}

    def _with_short_ids(self, message: dict[str, Any]) -> dict[str, Any]:
        one = dict(message)
        if "tool_call_id" in one:
            one["tool_call_id"] = _short(one["tool_call_id"])
        if "tool_calls" in one:
            one["tool_calls"] = [{**call, "id": _short(call["id"])} for call in one["tool_calls"]]
        return one


def treatment_of(template: JinjaTemplate) -> Treatment:
    """Try what a template takes.

    Raises:
        ConfigError: it shows neither what a user says nor what the assistant said.
    """
    return _Trial(template).treatment()


class _Trial:
    """A conversation with a template in which it is seen what stands in what it writes."""

    def __init__(self, template: JinjaTemplate) -> None:
        self._template = template
        self._parts = False

    def treatment(self) -> Treatment:
        self._parts = not self._shown([_ASKED]) and self._shown([_ASKED], parts=True)
        if not self._parts and not self._shown([_ASKED]):
            self._refuse([_ASKED], "what a user says")
        if not self._shown([_ASKED, _SAID]):
            self._refuse([_ASKED, _SAID], "what the assistant said")
        system = {"role": "system", "content": "the instruction"}
        short_ids = self._tool_with(_call_id(short=True)) and not self._tool_with(_call_id())
        shown = self._tool_with(_call_id(short=short_ids))
        # An answer that begins inside a thought must be told from one that does not.
        tool = shown and self._thinks_alike(_call_id(short=short_ids))
        why = "begins a thought after a user's message and none after results of tools"
        later_system = self._shown([_ASKED, _SAID, system])
        return Treatment(
            parts=self._parts,
            reasoning_key=self._reasoning_key(),
            system=self._shown([system, _ASKED]),
            later_system=later_system,
            tool=tool,
            joined=self._joined(tool, later_system, short_ids),
            short_ids=short_ids,
            **({"why_no_tool": why} if shown and not tool else {}),
        )

    def _thinks_alike(self, call_id: str) -> bool:
        """Whether a result of a tool is followed by an open thought if a user's message is."""
        ends = [
            (self._template.attempt(self._as_parts(messages, None), opening=True) or "").rstrip()
            for messages in ([_ASKED], [_ASKED, _SAID, _result("the result", call_id)])
        ]
        return ends[0].endswith(THINK_OPEN) == ends[1].endswith(THINK_OPEN)

    def _reasoning_key(self) -> str | None:
        for key in ("reasoning_content", "thinking", "reasoning"):
            if self._shows([_ASKED, {**_SAID, key: "thought apart"}], ["thought apart"]):
                return key
        return None

    def _tool_with(self, call_id: str) -> bool:
        return self._shown([_ASKED, _SAID, _result("the result", call_id)])

    def _joined(self, tool: bool, system: bool, short_ids: bool) -> frozenset[tuple[str, str]]:
        roles = ["user", *(["tool"] if tool else []), *(["system"] if system else [])]

        def message(role: str, content: str) -> Mapping[str, Any]:
            if role == "tool":
                return _result(content, _call_id(short=short_ids))
            return {"role": role, "content": content}

        pairs = [(one, other) for one in roles for other in roles]
        return frozenset(
            (one, other)
            for one, other in pairs
            if not self._shown([_ASKED, _SAID, message(one, "the one"), message(other, "the next")])
        )

    def _shown(self, messages: Sequence[Mapping[str, Any]], *, parts: bool | None = None) -> bool:
        return self._shows(messages, [one["content"] for one in messages], parts=parts)

    def _shows(
        self,
        messages: Sequence[Mapping[str, Any]],
        texts: Sequence[str],
        *,
        parts: bool | None = None,
    ) -> bool:
        """Whether the template renders ``messages`` and all of ``texts`` stand in it, in order."""
        rendered = self._template.attempt(self._as_parts(messages, parts), opening=True)
        position = 0
        for text in texts:
            found = -1 if rendered is None else rendered.find(text, position)
            if found < 0:
                return False
            position = found + len(text)
        return True

    def _as_parts(
        self, messages: Sequence[Mapping[str, Any]], parts: bool | None
    ) -> list[dict[str, Any]]:
        if self._parts if parts is None else parts:
            return Treatment(parts=True).arrange([dict(one) for one in messages])
        return [dict(one) for one in messages]

    def _refuse(self, messages: Sequence[Mapping[str, Any]], what: str) -> None:
        self._template.render(self._as_parts(messages, None), opening=False)  # raises, if it does
        raise ConfigError(
            f"the chat template of '{self._template.name}' does not show {what}, so no "
            "conversation can be carried on; give agent.renderer.options.template another file"
        )


def _result(content: str, call_id: str) -> Mapping[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": call_id}


def _call_id(*, short: bool = False) -> str:
    return "abcdef123" if short else "call_0"


def _short(call_id: str) -> str:
    if _PLAIN_ID.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:9]
