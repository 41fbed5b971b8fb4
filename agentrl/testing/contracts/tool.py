"""What every tool must do. The subject is a ``ToolSubject``: the tool as a tool list names it.

``assert_contract(CHECKS, ToolSubject(MyTool))``. Tools are called with arguments made up from their
schema, unless ``arguments`` gives better ones by the tool's name. For them a ``ToolError`` is as
good an answer as any other.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from agentrl.core.errors import AgentRLError
from agentrl.core.message import ToolCall, ToolSpec
from agentrl.core.protocols import SandboxProvider
from agentrl.core.task import Task
from agentrl.testing.contract import ContractViolation, require
from agentrl.tools.blocking import LoopWatch
from agentrl.tools.dispatch import Dispatched, DispatchLimits
from agentrl.tools.schema import problem_of_schema
from agentrl.tools.toolbox import OpenTools, Toolbox

__all__ = ["CHECKS", "ToolSubject", "made_up"]

OPENINGS = 2
ODD_STRINGS = ("", " ", "x" * 100_000, "\u202e\U0001f600\x1b[31m", "{}%s\\'\"`$(id)", "../../etc")
_TASK = Task("contract", "contract", "train")


@dataclass(frozen=True, slots=True)
class ToolSubject:
    """A tool (or several) to be held against the contract.

    Attributes:
        source: An entry of a tool list: a class, function, object or name.
        arguments: Arguments to call it with, by the name of the tool.
        task: The problem of the episode. sandbox: Opens sandboxes, if it asks for one.
        deadline_s: What a call may take.
    """

    source: Any
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    task: Task = _TASK
    sandbox: SandboxProvider | None = None
    deadline_s: float = 20.0

    def toolbox(self, watch: LoopWatch | None = None) -> Toolbox:
        limits = DispatchLimits(deadline_s=self.deadline_s)
        return Toolbox([self.source], limits=limits, sandbox=self.sandbox, watch=watch)

    @asynccontextmanager
    async def opened(self, watch: LoopWatch | None = None) -> AsyncIterator[OpenTools]:
        """The tools of a new episode."""
        async with self.toolbox(watch).open(self.task, seed=7) as tools:
            yield tools

    def call(self, spec: ToolSpec, **changed: Any) -> ToolCall:
        """A call that should fit."""
        given = self.arguments.get(spec.name)
        chosen = made_up(spec.parameters) if given is None else dict(given)
        return ToolCall("1", spec.name, {**chosen, **changed})


def made_up(schema: Mapping[str, Any]) -> Any:
    """A small value that fits a JSON schema; of an object only what it requires."""
    for key in ("enum", "examples"):
        if schema.get(key):
            return schema[key][0]
    if "default" in schema:
        return schema["default"]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return made_up(schema[key][0])
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: made_up(properties[name]) for name in schema.get("required", ())}
    if kind == "array":
        return [made_up(schema["items"])] if schema.get("minItems") else []
    if kind in ("integer", "number"):
        least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        return int(least)
    if kind == "string":
        return "a" * max(int(schema.get("minLength", 1)), 1)
    return {"boolean": True, "null": None}.get(str(kind))


def edges(schema: Mapping[str, Any]) -> list[float]:
    """Numbers that fit a JSON schema and that a tool's author may not have thought of.

    Zero, -1 and the bounds; none where the schema takes no number, or names those that it takes.
    """
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            found = [number for one in schema[key] for number in edges(one)]
            return list(dict.fromkeys(found))
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    if "enum" in schema or "const" in schema or not {"integer", "number"} & set(kinds):
        return []
    wanted = [0, -1, schema.get("minimum"), schema.get("maximum")]
    numbers = [one for one in wanted if one is not None and _allows(schema, one)]
    return [one for one in dict.fromkeys(numbers) if "number" in kinds or one == int(one)]


def _allows(schema: Mapping[str, Any], number: float) -> bool:
    return (
        schema.get("minimum", number) <= number <= schema.get("maximum", number)
        and not number <= schema.get("exclusiveMinimum", number - 1)
        and not number >= schema.get("exclusiveMaximum", number + 1)
        and ("multipleOf" not in schema or number % schema["multipleOf"] == 0)
    )


async def its_spec_can_be_shown(subject: ToolSubject) -> None:
    """Name, description and parameters are JSON that any template can write out."""
    async with subject.opened() as tools:
        require(bool(tools.specs), "it offers no tool")
        for spec in tools.specs:
            require(bool(spec.description.strip()), f"'{spec.name}' has no description")
            problem = problem_of_schema(spec.parameters)
            require(problem is None, f"'{spec.name}': {problem}")
            for name, schema in spec.parameters.get("properties", {}).items():
                require(
                    bool(schema.get("description")),
                    f"'{spec.name}': the parameter '{name}' is not described; the model can only "
                    "guess what it is",
                )
                typed = any(key in schema for key in ("type", "enum", "anyOf", "oneOf", "allOf"))
                require(typed, f"'{spec.name}': the parameter '{name}' has no type")


async def its_spec_is_the_same_for_every_episode(subject: ToolSubject) -> None:
    """Two episodes are shown the same tools."""
    shown = []
    for _ in range(2):
        async with subject.opened() as tools:
            shown.append([_written(spec) for spec in tools.specs])
    require(
        shown[0] == shown[1], "two episodes were shown different specs; order and text are fixed"
    )


async def it_answers_what_fits(subject: ToolSubject) -> None:
    """A call with fitting arguments is answered with text, or with a ToolError."""
    async with subject.opened() as tools:
        for spec in tools.specs:
            answered = await _answered(tools, subject.call(spec), "a call")
            (record,) = answered.records
            require(
                record.ran,
                f"'{spec.name}' was not called with {dict(record.call.arguments)!r}: "
                f"{record.result.content}; give arguments that fit (arguments={{...}})",
            )


async def it_refuses_what_does_not_fit(subject: ToolSubject) -> None:
    """Missing, unknown and wrong arguments come back as an error that the model can read."""
    async with subject.opened() as tools:
        for spec in tools.specs:
            call = subject.call(spec)
            wrong = [("an unknown argument", subject.call(spec, no_such_argument=1))]
            for name in spec.parameters.get("required", ()):
                rest = {key: one for key, one in call.arguments.items() if key != name}
                wrong.append((f"no '{name}'", ToolCall("1", spec.name, rest)))
            for what, one in wrong:
                answered = await _answered(tools, one, f"a call with {what}")
                problem = answered.records[0].problem
                require(
                    problem in ("arguments", "error"),
                    f"'{spec.name}' took a call with {what}; it must be refused, with what was "
                    "expected",
                )


async def odd_arguments_are_answered(subject: ToolSubject) -> None:
    """Empty, huge and hostile text never raises anything but a ToolError."""
    async with subject.opened() as tools:
        for spec in tools.specs:
            for name, schema in spec.parameters.get("properties", {}).items():
                if schema.get("type") != "string" or "enum" in schema:
                    continue
                for text in ODD_STRINGS:
                    async with subject.opened() as fresh:
                        what = f"{name}={text[:20]!r}"
                        await _answered(fresh, subject.call(spec, **{name: text}), what)


async def numbers_at_their_edges_are_answered(subject: ToolSubject) -> None:
    """Zero, -1 and the bounds that the schema allows never raise anything but a ToolError."""
    async with subject.opened() as tools:
        for spec in tools.specs:
            for name, schema in spec.parameters.get("properties", {}).items():
                for number in edges(schema):
                    async with subject.opened() as fresh:
                        call = subject.call(spec, **{name: number})
                        await _answered(fresh, call, f"{name}={number}")


async def episodes_share_nothing(subject: ToolSubject) -> None:
    """What one episode does, another does not see."""
    async with subject.opened() as alone:
        expected = await _all_called(subject, alone)
    toolbox = subject.toolbox()
    async with (
        toolbox.open(subject.task, seed=7) as rival,
        toolbox.open(subject.task, seed=7) as tools,
    ):
        await _all_called(subject, rival)
        await _all_called(subject, rival)
        got = await _all_called(subject, tools)
    for name, one in expected.items():
        require(
            got[name] == one,
            f"'{name}' answered {one!r} in an episode of its own, and {got[name]!r} after another "
            "episode had used it: keep state on the object that is made for the episode, not on "
            "the class or module",
        )


async def read_only_means_it(subject: ToolSubject) -> None:
    """A read-only tool gives the same answer again, alone and beside itself."""
    async with subject.opened() as tools:
        for spec in (one for one in tools.specs if one.read_only):
            call = subject.call(spec)
            first = (await _answered(tools, call, "a call")).records[0].result
            both = await tools.answer([call, call])
            for again in both.records:
                require(
                    again.result == first,
                    f"'{spec.name}' is marked read-only, and answered {first.content[:80]!r}, then "
                    f"{again.result.content[:80]!r} to the same call",
                )


async def it_leaves_the_event_loop_alone(subject: ToolSubject) -> None:
    """A call gives the event loop back within half a second."""
    found: list[str] = []
    watch = LoopWatch(long_s=0.5, stuck_s=5.0, report=found.append)
    async with subject.opened(watch) as tools:
        for spec in tools.specs:
            await _answered(tools, subject.call(spec), "a call")
    require(not found, "; ".join(found))


async def global_randomness_is_left_alone(subject: ToolSubject) -> None:
    """Calling it does not touch the global random generator."""
    before = random.getstate()
    async with subject.opened() as tools:
        await _all_called(subject, tools)
    require(
        random.getstate() == before,
        "the state of the global random module changed; ask for 'seed' in __init__, and use "
        "random.Random(seed)",
    )


async def closing_frees_it(subject: ToolSubject) -> None:
    """Episodes are opened and closed quickly, one after another."""
    started = time.perf_counter()
    for _ in range(OPENINGS):
        async with subject.opened():
            pass
    each = (time.perf_counter() - started) / OPENINGS
    require(
        each < 1.0,
        f"making and closing it takes {each:.1f} s an episode; make what is dear once (shared = "
        "True, if it is read-only)",
    )


def _written(spec: ToolSpec) -> str:
    return json.dumps([spec.name, spec.description, dict(spec.parameters), spec.read_only])


async def _answered(tools: OpenTools, call: ToolCall, what: str) -> Dispatched:
    try:
        async with asyncio.timeout(60):
            return await tools.answer([call])
    except AgentRLError as error:
        raise ContractViolation(
            f"{what} of '{call.name}' ended the episode: {type(error).__name__}: {error}. Raise "
            "ToolError for what is the model's to mend"
        ) from error


async def _all_called(subject: ToolSubject, tools: OpenTools) -> dict[str, str]:
    """The answer of each tool, called in turn."""
    answers = {}
    for spec in tools.specs:
        answered = await _answered(tools, subject.call(spec), "a call")
        answers[spec.name] = answered.records[0].result.content
    return answers


CHECKS: Sequence[Any] = (
    its_spec_can_be_shown,
    its_spec_is_the_same_for_every_episode,
    it_answers_what_fits,
    it_refuses_what_does_not_fit,
    odd_arguments_are_answered,
    numbers_at_their_edges_are_answered,
    episodes_share_nothing,
    read_only_means_it,
    it_leaves_the_event_loop_alone,
    global_randomness_is_left_alone,
    closing_frees_it,
)
