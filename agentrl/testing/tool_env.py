"""A tiny environment with tools, for tests of what happens to calls on their way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl.core.errors import ConfigError, EnvError
from agentrl.core.message import Message, ToolCall, ToolSpec
from agentrl.core.protocols import Demonstration
from agentrl.core.task import Task, content_hash
from agentrl.core.trajectory import Observation, StepResult

__all__ = ["BOX_TOOLS", "BoxEnv", "BoxFactory"]

BOX_TOOLS = (
    ToolSpec(
        "open",
        "Open the box of a number and say what is in it.",
        {
            "type": "object",
            "properties": {"number": {"type": "integer"}},
            "required": ["number"],
        },
        read_only=True,
    ),
    ToolSpec(
        "note",
        "Write a text down.",
        {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    ),
)
_CONTENTS = ("cat", "mug", "key")


@dataclass(slots=True)
class BoxEnv:
    """Asks what is in a box; a message without calls is the answer and ends the episode.

    Every call is answered by one tool message, in call order and with its id: its problem, an
    error that lists the tools, or what the tool returned.

    Attributes:
        number: The box that is asked for.
        actions: The messages it was sent. run: Names and arguments of the calls that ran.
    """

    number: int = 0
    limit: int = 20
    actions: list[Message] = field(default_factory=list)
    run: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    began: bool = False
    over: bool = False
    closed: bool = False

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return BOX_TOOLS

    async def reset(self) -> Observation:
        if self.began or self.closed:
            raise EnvError("a box environment is played once; make a new one")
        self.began = True
        return _asked(self.number)

    async def step(self, action: Message) -> StepResult:
        if not self.began or self.over or self.closed:
            raise EnvError("step comes after reset and before the end of the episode")
        self.actions.append(action)
        late = len(self.actions) >= self.limit
        if not action.tool_calls:
            solved = action.content == _CONTENTS[self.number]
            valid = bool(action.content.strip())
            self.over = valid or late
            return StepResult(
                Observation(() if valid else (Message("user", "Say something."),)),
                float(solved),
                terminated=valid,
                truncated=late and not valid,
                action_valid=valid,
                success=solved if self.over else None,
            )
        answers = [self._answer(call) for call in action.tool_calls]
        failed = sum(text.startswith("error:") for text in answers)
        self.over = late
        messages = tuple(
            Message("tool", text, tool_call_id=call.id)
            for call, text in zip(action.tool_calls, answers, strict=True)
        )
        return StepResult(
            Observation(messages, anchor=repr(self.run)),
            0.0,
            terminated=False,
            truncated=late,
            action_valid=not failed,
            success=False if late else None,
            metrics={"tool_failure": float(failed)},
        )

    async def aclose(self) -> None:
        self.closed = True

    def _answer(self, call: ToolCall) -> str:
        if call.problem is not None:
            return f"error: {call.problem}"
        tool = {"open": _open, "note": _note}.get(call.name)
        if tool is None:
            known = ", ".join(one.name for one in BOX_TOOLS)
            return f"error: there is no tool '{call.name}'; there are: {known}"
        self.run.append((call.name, call.arguments))
        return tool(call.arguments)


def _open(arguments: Mapping[str, Any]) -> str:
    number = arguments.get("number")
    if type(number) is not int or not 0 <= number < len(_CONTENTS):
        return f"error: number must be 0 to {len(_CONTENTS) - 1}, got {number!r}"
    return _CONTENTS[number]


def _note(arguments: Mapping[str, Any]) -> str:
    text = arguments.get("text")
    return "noted" if isinstance(text, str) else f"error: text must be a string, got {text!r}"


@dataclass(frozen=True, slots=True)
class BoxFactory:
    """One task a box; three splits of one box each; the expert opens the box and says what it saw.

    Note that nothing can be learnt here that holds for another split.
    """

    make_env: Callable[..., BoxEnv] = BoxEnv
    splits: Sequence[str] = ("train", "validation", "test")
    tools: Sequence[ToolSpec] = BOX_TOOLS

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self.splits:
            raise ConfigError(f"no split '{split}'; there are: {', '.join(self.splits)}")
        payload = {"number": self.splits.index(split)}
        return [Task(content_hash(payload), "box", split, payload)]

    async def make(self, task: Task, *, seed: int) -> BoxEnv:
        return self.make_env(number=task.payload["number"])

    def demonstrate(self, task: Task, *, seed: int, noise: float) -> Iterator[Demonstration]:
        number = task.payload["number"]
        call = ToolCall("call_0", "open", {"number": number})
        asking = Message("assistant", "", tool_calls=(call,))
        yield Demonstration(_asked(number), asking, trainable=True)
        seen = Message("tool", _CONTENTS[number], tool_call_id=call.id)
        opened = Observation((seen,), anchor=repr([("open", {"number": number})]))
        yield Demonstration(opened, Message("assistant", seen.content), trainable=True)


def _asked(number: int) -> Observation:
    return Observation((Message("user", f"What is in box {number}?"),), anchor="asked")
