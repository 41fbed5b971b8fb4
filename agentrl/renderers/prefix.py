"""What does a chat template do to what was already said? Asked before the first episode."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentrl.core.errors import ConfigError
from agentrl.core.message import Message, Role, ToolSpec
from agentrl.renderers.answer import THINK_CLOSE, THINK_OPEN
from agentrl.renderers.template import ChatTemplate

__all__ = ["Finding", "TemplateReport", "examine"]

_THOUGHT = "a thought of the first turn"
_ASKED = Message("user", "first message")
_ANSWER = Message("assistant", "first answer")
_TOOL = ToolSpec("find_it", "Find a thing.", {"type": "object", "properties": {}})
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a template does.

    Attributes:
        kind: What, in a few words: ``drops the thinking of earlier turns``.
        when: In which case.
        text: A whole sentence that names the template, the case and the place.
    """

    kind: str
    when: str
    text: str


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """What a template does, and what is done about it.

    Attributes:
        breaks: Where it changes what was already said: with ``history: template`` a new segment
            begins there; with ``append`` never, since nothing said is rendered again.
        spaces: The same for answers with white space around them, which hardly any template keeps.
        treatment: How messages are arranged for it; empty: they are not.
        notes: What else it does that breaks no prefix.
        shows_tools: It tells the model of its tools.
    """

    breaks: tuple[Finding, ...]
    spaces: tuple[Finding, ...]
    treatment: tuple[str, ...]
    notes: tuple[str, ...]
    shows_tools: bool

    @property
    def append_only(self) -> bool:
        """Whether rendering a longer conversation only ever appends to the shorter one.

        Of answers without white space around them; see ``spaces``.
        """
        return not self.breaks


def examine(template: ChatTemplate) -> TemplateReport:
    """Try a template: each case is two renderings, of which the second must begin with the first.

    Tried: an answer with and without thinking, with and without white space around it, followed by
    a user's message and by a tool's result, after a system message and tools; two steps in a row.
    What a template cannot render is no break.
    """
    shows_tools = _TOOL.name in _try_text(template, [_ASKED], tools=[_TOOL])
    breaks = tuple(_breaks(template, shows_tools))
    treatment = template.treatment.sentences()
    spaces = () if breaks else tuple(_spaces(template))
    return TemplateReport(breaks, spaces, treatment, tuple(_notes(template)), shows_tools)


def _breaks(template: ChatTemplate, shows_tools: bool) -> Iterator[Finding]:
    # An opening that ends thinking at once leaves no room for a thought.
    thoughts = (None,) if THINK_CLOSE in template.opening else (_THOUGHT, None)
    plain_is_kept = True
    for role in _roles(template):
        for thought in thoughts:
            answer = Message("assistant", _ANSWER.content, reasoning=thought)
            case = f"a {role} message follows an answer {'with' if thought else 'without'} thinking"
            found = _compare(template, [_ASKED], answer, role, case)
            if found:
                plain_is_kept = plain_is_kept and bool(thought)
                yield found
    if not plain_is_kept:
        return
    system = [Message("system", "an instruction"), _ASKED]
    tools = [_TOOL] if shows_tools else []
    case = "a user message follows, after a system message" + (" and tools" if tools else "")
    yield from filter(None, [_compare(template, system, _ANSWER, "user", case, tools)])
    for role in _roles(template):
        yield from filter(None, [_second_step(template, role)])


def _spaces(template: ChatTemplate) -> Iterator[Finding]:
    for case, before, after in (
        ("an answer has white space around it", " ", " \n"),
        ("an answer begins with a line break", "\n", ""),
    ):
        answer = Message("assistant", f"{before}{_ANSWER.content}{after}")
        found = _compare(template, [_ASKED], answer, "user", case)
        if found:
            yield found
            return


def _roles(template: ChatTemplate) -> tuple[Role, ...]:
    return ("user", "tool") if template.treatment.tool else ("user",)


def _message(role: Role, content: str) -> Message:
    return Message(role, content, tool_call_id="call_0" if role == "tool" else None)


def _compare(
    template: ChatTemplate,
    before: Sequence[Message],
    answer: Message,
    role: Role,
    case: str,
    tools: Sequence[ToolSpec] = (),
) -> Finding | None:
    following = _message(role, "second message")
    try:
        closing = template.upto_control(template.text_after_answer([following]))
        prompt = template.text(before, opening=True, tools=tools)
        held = prompt + _spoken(template, answer) + closing
        whole = template.text([*before, answer, following], opening=False, tools=tools)
    except ConfigError:
        return None
    if not whole.startswith(held):
        return _finding(template, held, whole, answer.reasoning, case, prompt=prompt)
    return _seam(template, [prompt, held[len(prompt) :]], whole, case)


def _seam(template: ChatTemplate, pieces: Sequence[str], whole: str, case: str) -> Finding | None:
    """The same text in other tokens: one that reaches across the beginning of an answer."""
    held = [one for piece in pieces for one in template.encode(piece)]
    following = template.encode(whole)
    if following[: len(held)] == held:
        return None
    place = _first_difference(held, following)
    kind = "merges the end of its opening with the beginning of the answer"
    return Finding(
        kind,
        case,
        f"the chat template of '{template.name}' {kind} when {case}: at token {place} the record "
        f"goes on {template.decode(held[place : place + 3])!r}, the next prompt "
        f"{template.decode(following[place : place + 3])!r}",
    )


def _second_step(template: ChatTemplate, role: Role) -> Finding | None:
    """Is a later message written as the first one was?"""
    one, other = _message(role, "second message"), _message(role, "third message")
    second = Message("assistant", "second answer")
    try:
        pieces = (
            template.text([_ASKED], opening=True)
            + _spoken(template, _ANSWER)
            + template.text_after_answer([one])
            + _spoken(template, second)
            + template.text_after_answer([other])
        )
        whole = template.text([_ASKED, _ANSWER, one, second, other], opening=True)
    except ConfigError:
        return None
    if whole == pieces:
        return None
    case = f"a second {role} message follows a second answer"
    return _finding(template, pieces, whole, None, case)


def _spoken(template: ChatTemplate, answer: Message) -> str:
    """What a policy says: thinking as the template writes it in a last answer, if it does."""
    if answer.reasoning:
        prompt = template.text([_ASKED], opening=True)
        whole = template.text([_ASKED, answer], opening=False)
        thought, found, _ = whole[len(prompt) :].partition(answer.content)
        if whole.startswith(prompt) and found and answer.reasoning in thought:
            return thought + answer.content
    return template.said(answer)


def _finding(
    template: ChatTemplate,
    held: str,
    whole: str,
    reasoning: str | None,
    case: str,
    *,
    prompt: str | None = None,
) -> Finding:
    place = _first_difference(held, whole)
    kind = _kind(template, held, whole, reasoning)
    if kind == _OTHER and prompt is not None and place < len(prompt):
        kind = _head_kind(prompt, whole)
    return Finding(
        kind,
        case,
        f"the chat template of '{template.name}' {kind} when {case}: at character {place} the "
        f"record goes on {held[place : place + _SHOWN]!r}, the next prompt "
        f"{whole[place : place + _SHOWN]!r}",
    )


def _first_difference(one: Sequence[object], other: Sequence[object]) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


_OTHER = "changes what was already said"


def _kind(template: ChatTemplate, held: str, whole: str, reasoning: str | None) -> str:
    if reasoning and reasoning not in whole:
        return "drops the thinking of earlier turns"
    if whole.count(THINK_OPEN) > held.count(THINK_OPEN):
        return "inserts an empty think block"
    if whole.count(THINK_OPEN) < held.count(THINK_OPEN):
        return "drops the think block that its opening wrote"
    for name in ("bos", "eos"):
        token = template.jinja.special(name)
        if token and whole.count(token) > held.count(token) + 1:
            return f"repeats the {name.upper()} token in earlier turns"
    if "".join(whole.split()).startswith("".join(held.split())):
        return "trims white space of earlier answers"
    return _OTHER


def _head_kind(prompt: str, whole: str) -> str:
    """The change stands before the answer: what was moved away from there?"""
    moved = [
        what
        for what, text in (("the system message", "an instruction"), ("the tools", _TOOL.name))
        if text in prompt and whole.find(text) > whole.find(_ANSWER.content) >= 0
    ]
    return f"moves {' and '.join(moved)} to the last user message" if moved else _OTHER


def _notes(template: ChatTemplate) -> Iterator[str]:
    if not template.treatment.later_system:
        yield "shows no system message later on: it is shown as a message of the user"
    if template.treatment.parts:
        yield "takes content as a list of parts: texts are given as such"
    yield from _special_notes(template)
    if template.treatment.tool:
        yield from _tool_notes(template)
    thinking = Message("assistant", _ANSWER.content, reasoning=_THOUGHT)
    thought = _spoken(template, thinking).partition(_THOUGHT)[0]
    if mark := template.upto_control(thought):
        yield (
            f"writes thinking after {mark!r}, which is a control token and not read as thinking: "
            "leave thinking off"
        )
    if template.jinja.date is not None:
        yield (
            f"writes a date into the prompt ({template.jinja.date.isoformat()}): it is taken once; "
            "set agent.renderer.options.date to keep it from one day to the next"
        )


def _special_notes(template: ChatTemplate) -> Iterator[str]:
    """BOS, EOS and what closes an answer."""
    bos, eos = template.jinja.special("bos"), template.jinja.special("eos")
    start = template.text([_ASKED], opening=True)
    after = template.text_after_answer([_message("user", "second message")])
    closing = template.upto_control(after)
    rest = after[len(closing) :].lstrip()
    opens_turns = bos is not None and bos in template.opening  # some call that token their BOS
    if bos and bos not in start:
        yield f"writes no BOS token ({bos}): none is added"
    if bos and start.startswith(bos + bos) and not opens_turns:
        yield f"repeats the BOS token {bos} at the beginning: it is kept as written"
    if bos and rest.startswith(bos) and not opens_turns:
        yield f"repeats the BOS token {bos} in every turn: it is kept as written"
    if rest.startswith(closing.strip()):
        yield f"repeats {closing.strip()} after an answer: the second one is kept as written"
    elif eos and rest.startswith(eos):
        yield (
            f"closes an answer with {closing.strip()} and {eos}: the first ends it, the next "
            "prompt adds the second"
        )
    last = template.text([_ASKED, _ANSWER], opening=False).rpartition(_ANSWER.content)[2]
    if not template.upto_control(last):
        yield (
            "closes an answer with the token that opens the next turn: the answer ends with it, "
            "and the next prompt goes on behind it"
        )


def _tool_notes(template: ChatTemplate) -> Iterator[str]:
    user = template.text_after_answer([_message("user", "second message")])
    header = user.partition("second message")[0].strip()
    results = [_message("tool", f"{number} message") for number in ("second", "third")]
    one, both = template.text_after_answer(results[:1]), template.text_after_answer(results)
    if both.startswith(header):
        shared = "; several in a row share one" if both.count(header) == 1 else ""
        yield f"writes results of tools inside a turn of the user{shared}"
    if not one.endswith(template.opening):
        yield "opens no turn after results of tools: the answer goes on behind them"
    try:
        template.text([_ASKED, _ANSWER, results[0], _ANSWER, results[1]], opening=True)
    except ConfigError:
        yield (
            "refuses results of tools after an answer whose calls stand in its text: such a "
            "conversation, rendered anew, is put together from its parts"
        )


def _try_text(
    template: ChatTemplate, messages: Sequence[Message], *, tools: Sequence[ToolSpec]
) -> str:
    try:
        return template.text(messages, opening=True, tools=tools)
    except ConfigError:
        return ""
