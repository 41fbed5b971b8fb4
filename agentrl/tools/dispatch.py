"""The calls of one message, answered: in call order, each with its id, whatever it asked for."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agentrl.core.errors import ConfigError, EnvError, nearest
from agentrl.core.message import Message, ToolCall
from agentrl.core.protocols import ToolResult
from agentrl.tools.arguments import ArgumentsRefused, unfit_text
from agentrl.tools.blocking import LoopWatch
from agentrl.tools.running import LiveTool
from agentrl.tools.text import clean, cut, share_out

__all__ = ["CallRecord", "DispatchLimits", "Dispatched", "Problem", "dispatch"]

Problem = Literal["", "error", "late", "unreadable", "unknown", "arguments", "surplus", "after_end"]
_NAME_SHOWN = 64


@dataclass(frozen=True, slots=True)
class DispatchLimits:
    """What the tools may use for one message of the policy.

    Attributes:
        calls: Most calls; the surplus is answered, not run.
        output_chars: Most characters of all results together.
        output_tokens: Most tokens of them, as ``count_tokens`` counts; ``None``: as many as fit.
        deadline_s: Seconds of a call, for tools without a deadline of their own.
    """

    calls: int = 16
    output_chars: int = 16_000
    output_tokens: int | None = None
    deadline_s: float = 60.0
    count_tokens: Callable[[str], int] | None = None

    def __post_init__(self) -> None:
        for one in ("calls", "output_chars", "output_tokens", "deadline_s"):
            value = getattr(self, one)
            if value is not None and (isinstance(value, bool) or not value > 0):
                raise ConfigError(f"limits of tools: {one} must be above 0, got {value!r}")


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call and its answer. ``problem`` says why it failed or was not run, "" if neither.

    ``result`` is as the tool gave it; what the model was shown may be cut.
    """

    call: ToolCall
    result: ToolResult
    problem: Problem = ""
    read_only: bool = False
    seconds: float = 0.0
    waited_s: float = 0.0

    @property
    def ran(self) -> bool:
        return self.problem in ("", "error", "late")


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The answers to a message's calls, in call order."""

    messages: tuple[Message, ...]
    records: tuple[CallRecord, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def final(self) -> ToolResult | None:
        """The result that ended the episode, if one did."""
        return next((one.result for one in self.records if one.result.final), None)

    @property
    def well_formed(self) -> bool:
        """Whether every call could be run."""
        return all(one.ran or one.problem == "after_end" for one in self.records)


async def dispatch(
    calls: Sequence[ToolCall],
    tools: Mapping[str, LiveTool],
    limits: DispatchLimits,
    *,
    watch: LoopWatch,
    clock: Callable[[], float],
) -> Dispatched:
    """Run the calls of one message.

    Neighbouring calls of read-only tools run at once; any other runs alone, after all before it.
    After a call that ends the episode none is run.

    Raises:
        AgentRLError: a tool failed, and the model is not to blame; names the tool. The calls that
            ran beside it are cancelled.
    """
    records: list[CallRecord] = []
    ended = False
    used_s = waited_s = 0.0
    for batch in _batches(calls[: limits.calls], tools):
        if ended:
            records += [_unrun(call, "after_end", "not run: the episode is over") for call in batch]
            continue
        answered = await _at_once(batch, tools, limits, watch, clock)
        ended = any(one.result.final for one in answered)
        longest_s = max(one.seconds for one in answered)
        used_s += longest_s
        waited_s += max(one.waited_s + one.seconds for one in answered) - longest_s
        records += answered
    surplus = f"not run: one message may hold {limits.calls} calls, this one had {len(calls)}"
    records += [_unrun(call, "surplus", surplus) for call in calls[limits.calls :]]
    shown = _shown([one.result.content for one in records], limits)
    messages = tuple(
        Message("tool", text, tool_call_id=one.call.id or None)
        for one, text in zip(records, shown, strict=True)
    )
    metrics = {"tool_s": used_s, "tool_wait_s": waited_s, **_counts(records, shown)}
    return Dispatched(messages, tuple(records), metrics)


def _batches(calls: Sequence[ToolCall], tools: Mapping[str, LiveTool]) -> list[list[ToolCall]]:
    """Calls that may run at once: what changes nothing, or one that does."""
    batches: list[list[ToolCall]] = []
    joinable = False
    for call in calls:
        live = tools.get(call.name)
        harmless = call.problem is not None or live is None or _harmless(live)
        if joinable and harmless:
            batches[-1].append(call)
        else:
            batches.append([call])
        joinable = harmless
    return batches


def _harmless(live: LiveTool) -> bool:
    settings = live.definition.settings
    return settings.read_only and not settings.may_end


async def _at_once(
    calls: Sequence[ToolCall],
    tools: Mapping[str, LiveTool],
    limits: DispatchLimits,
    watch: LoopWatch,
    clock: Callable[[], float],
) -> list[CallRecord]:
    if len(calls) == 1:
        return [await _answer(calls[0], tools, limits, watch, clock)]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_answer(call, tools, limits, watch, clock)) for call in calls
            ]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None  # the others were cancelled for it
    return [task.result() for task in tasks]


async def _answer(
    call: ToolCall,
    tools: Mapping[str, LiveTool],
    limits: DispatchLimits,
    watch: LoopWatch,
    clock: Callable[[], float],
) -> CallRecord:
    if call.problem is not None:
        return _unrun(call, "unreadable", clean(call.problem))
    live = tools.get(call.name)
    if live is None:
        name = clean(call.name)[:_NAME_SHOWN]
        hint = nearest(name, tools) or "."
        text = f"unknown tool '{name}'{hint} There are: {', '.join(tools) or 'none'}"
        return _unrun(call, "unknown", text)
    try:
        arguments = _arguments(live, call)
    except ArgumentsRefused as refused:
        return _unrun(call, "arguments", f"'{call.name}' was not called: {clean(str(refused))}")
    ran = await live.run(arguments, deadline_s=limits.deadline_s, watch=watch, clock=clock)
    read_only = live.definition.settings.read_only
    if ran.result.final and not live.definition.settings.may_end:
        raise EnvError(
            f"the tool '{call.name}' ended the episode (ToolResult.final) and is not marked as one "
            "that can: set may_end = True"
        )
    return CallRecord(call, ran.result, ran.problem, read_only, ran.seconds, ran.waited_s)


def _arguments(live: LiveTool, call: ToolCall) -> dict[str, Any]:
    odd = unfit_text(call.arguments)
    if odd is not None:
        raise ArgumentsRefused(odd)
    if live.definition.arguments is None:
        return _as_its_spec_says(live, call)
    try:
        return live.definition.arguments.read(call.arguments)
    except ArgumentsRefused:
        raise
    except Exception as error:  # a validator of the tool's own types is its code
        raise EnvError(
            f"the tool '{call.name}' raised {type(error).__name__} while its arguments were "
            f"checked: {error}; a validator raises ValueError for what does not fit"
        ) from error


def _as_its_spec_says(live: LiveTool, call: ToolCall) -> dict[str, Any]:
    """The arguments for a tool with a spec of its own, which looks at their values itself."""
    required = live.definition.spec.parameters.get("required", ())
    missing = [name for name in required if name not in call.arguments]
    if missing:
        raise ArgumentsRefused(f"missing: {', '.join(missing)}")
    try:
        inspect.signature(live.call).bind(**call.arguments)
    except TypeError as error:
        raise ArgumentsRefused(str(error)) from None
    except ValueError:
        pass  # written in C: it has no signature to compare with
    return dict(call.arguments)


def _unrun(call: ToolCall, problem: Problem, text: str) -> CallRecord:
    return CallRecord(call, ToolResult(f"error: {text}"), problem)


def _shown(texts: Sequence[str], limits: DispatchLimits) -> list[str]:
    shares = share_out([len(text) for text in texts], limits.output_chars)
    shown = [cut(text, share) for text, share in zip(texts, shares, strict=True)]
    count = limits.count_tokens
    if limits.output_tokens is None or count is None:
        return shown
    tokens = share_out([count(text) for text in shown], limits.output_tokens, least=32)
    return [
        cut(text, share, tokens=most, count_tokens=count)
        for text, share, most in zip(texts, shares, tokens, strict=True)
    ]


def _counts(records: Sequence[CallRecord], shown: Sequence[str]) -> dict[str, float]:
    """How many calls, and of what went wrong only what did."""
    failed = Counter(f"tool_{one.problem}" for one in records if one.problem)
    cuts = sum(text != one.result.content for one, text in zip(records, shown, strict=True))
    return {
        "tool_calls": float(len(records)),
        "tool_failure": float(sum(failed.values())),
        **{name: float(number) for name, number in sorted(failed.items())},
        **({"tool_output_cut": float(cuts)} if cuts else {}),
    }
