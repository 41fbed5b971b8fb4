"""Episodes made of an instruction, tools, perhaps a user and a scorer: what ends them, and how."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest

from agentrl.core.errors import AgentRLError, ConfigError, DataError, EnvError, UserError
from agentrl.core.message import Message, ToolCall
from agentrl.core.protocols import ToolResult
from agentrl.core.task import Task
from agentrl.core.trajectory import StepResult
from agentrl.envs.tools import Score, Situation, ToolEnvFactory
from agentrl.envs.tools.env import NOTHING_SAID, ToolEnv
from agentrl.testing.contract import assert_contract
from agentrl.testing.contracts.env import CHECKS
from agentrl.tools import tool

T = TypeVar("T")
PROBLEMS = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(40)]


class Box:
    """A counter that the policy may read and move."""

    def __init__(self) -> None:
        self.value = 0

    @tool(read_only=True)
    async def look(self) -> str:
        """Look."""
        return f"value {self.value}"

    @tool
    async def add(self, number: int) -> str:
        """Add.

        Args:
            number: How much.
        """
        self.value += number
        return "ok"


class Shop(Box):
    """One that can be finished."""

    @tool(may_end=True)
    async def submit(self, answer: str) -> ToolResult:
        """Submit, if it is not refused.

        Args:
            answer: It.
        """
        refused = answer == "maybe"
        text = "be sure" if refused else "received"
        return ToolResult(text, final=not refused, answer=answer)


def say(text: str) -> Message:
    return Message("assistant", text)


def call(name: str, /, **arguments: Any) -> Message:
    return Message("assistant", "", tool_calls=(ToolCall("1", name, arguments),))


def factory(tools: Sequence[Any] = (Box,), **options: Any) -> ToolEnvFactory:
    return ToolEnvFactory(PROBLEMS, tools, **options)


def in_episode(made: ToolEnvFactory, work: Callable[[ToolEnv], Awaitable[T]]) -> T:
    async def main() -> T:
        async with asyncio.timeout(60):
            env = await made.make(made.tasks("train")[0], seed=3)
            try:
                return await work(env)
            finally:
                await env.aclose()

    return asyncio.run(main())


def play(made: ToolEnvFactory, *actions: Message) -> list[StepResult]:
    async def work(env: ToolEnv) -> list[StepResult]:
        await env.reset()
        return [await env.step(action) for action in actions]

    return in_episode(made, work)


def right(made: ToolEnvFactory) -> str:
    answer: str = made.tasks("train")[0].payload["answer"]
    return answer


@pytest.mark.parametrize(
    "make",
    [
        factory,
        lambda: factory([Shop, "calculator"], max_steps=3),
        lambda: factory(user=lambda task, seed: Scripted("hello", "and now?", None)),
        lambda: factory(instruction=lambda task: "Go.", score=lambda situation: 0.5),
        lambda: ToolEnvFactory({"a": PROBLEMS[:9], "b": PROBLEMS[9:]}, [Box], expert=knows_it),
    ],
    ids=["plain", "submit", "user", "function", "expert"],
)
def test_a_tool_environment_keeps_the_contract(make: Callable[[], ToolEnvFactory]) -> None:
    assert_contract(CHECKS, make)


def test_text_without_a_call_is_the_answer() -> None:
    made = factory()
    (won,) = play(made, say(f"  {right(made)} "))
    assert (won.reward, won.terminated, won.success) == (1.0, True, True)
    looked, lost = play(made, call("look"), say("no idea"))
    assert (looked.reward, looked.terminated, looked.success) == (0.0, False, None)
    assert (lost.reward, lost.terminated, lost.success) == (0.0, True, False)
    assert looked.observation.messages == (Message("tool", "value 0", tool_call_id="1"),)


def test_what_is_said_beside_a_call_is_no_answer() -> None:
    made = factory()
    beside = Message("assistant", right(made), tool_calls=(ToolCall("1", "look", {}),))
    (result,) = play(made, beside)
    assert not result.terminated


def test_where_a_tool_ends_the_episode_text_alone_does_not() -> None:
    made = factory([Shop])
    text, refused, won = play(
        made, say(right(made)), call("submit", answer="maybe"), call("submit", answer=right(made))
    )
    assert (text.terminated, text.action_valid) == (False, False)
    assert "The task is over when you call 'submit'." in text.observation.messages[0].content
    assert (refused.terminated, refused.action_valid) == (False, True)
    assert (won.terminated, won.success, won.reward) == (True, True, 1.0)
    assert won.observation.messages == (Message("tool", "received", tool_call_id="1"),)


def test_an_empty_message_is_answered_and_not_taken_for_an_answer() -> None:
    (result,) = play(factory(), say(" \n"))
    assert (result.terminated, result.action_valid) == (False, False)
    assert result.observation.messages == (Message("user", NOTHING_SAID),)


def test_a_call_that_cannot_be_run_is_told_why_and_the_episode_goes_on() -> None:
    made = factory()
    broken = Message("assistant", "", tool_calls=(ToolCall("c", "", {}, problem="invalid JSON"),))
    unread, unknown, won = play(made, broken, call("nope"), say(right(made)))
    assert unread.observation.messages == (
        Message("tool", "error: invalid JSON", tool_call_id="c"),
    )
    assert (unread.action_valid, unknown.action_valid) == (False, False)
    assert unread.metrics["tool_unreadable"] == unknown.metrics["tool_failure"] == 1
    assert won.success is True


def test_a_budget_that_runs_out_among_calls_answers_the_last_and_truncates() -> None:
    made = factory(max_steps=2, score=lambda situation: True)
    first, last = play(made, call("add", number=1), call("add", number=2))
    assert (first.truncated, first.terminated) == (False, False)
    assert (last.truncated, last.terminated) == (True, False)
    assert last.observation.messages == (Message("tool", "ok", tool_call_id="1"),)
    assert (last.reward, last.success) == (0.0, False)  # the scorer is not asked
    with pytest.raises(EnvError, match="after the episode was over"):
        play(made, call("look"), call("look"), call("look"))
    (won,) = play(factory(max_steps=1, score=lambda situation: True), say("done"))
    assert (won.truncated, won.terminated, won.success) == (False, True, True)


def test_episodes_do_not_share_what_tools_did() -> None:
    made = factory(score=lambda situation: situation.part(Box).value == 1)
    for _ in range(2):
        assert play(made, call("add", number=1), say("done"))[-1].success is True


def test_the_scorer_is_shown_everything() -> None:
    seen: list[Situation] = []

    async def score(situation: Situation) -> float:
        seen.append(situation)
        return 0.7

    made = factory(score=score, success_at=0.5)
    actions = [call("add", number=2), call("nope"), say("done")]
    assert play(made, *actions)[-1].reward == 0.7
    (situation,) = seen
    assert situation.task == made.tasks("train")[0]
    assert situation.seed == 3
    assert situation.answer == "done"
    assert [one.role for one in situation.messages] == [
        *("user", "assistant", "tool", "assistant", "tool", "assistant")
    ]
    assert [(one.call.name, one.problem) for one in situation.calls] == [
        ("add", ""),
        ("nope", "unknown"),
    ]
    assert situation.part(Box).value == 2
    with pytest.raises(ConfigError, match="no tool of this environment is a Shop; there are: Box"):
        situation.part(Shop)


@pytest.mark.parametrize(
    ("said", "reward", "success"),
    [
        (True, 1.0, True),
        (False, 0.0, False),
        (1, 1.0, True),
        (0.4, 0.4, False),
        (10, 10.0, True),
        (Score(0.3, True), 0.3, True),
        (Score(None, False), None, False),
    ],
)
def test_reward_and_success_are_told_apart(said: Any, reward: float | None, success: bool) -> None:
    (result,) = play(factory(score=lambda situation: said), say("x"))
    assert (result.reward, result.success) == (reward, success)


@pytest.mark.parametrize("said", [None, "1", float("nan"), float("inf"), [1]], ids=repr)
def test_a_score_that_is_none_is_named_and_no_reward(said: Any) -> None:
    with pytest.raises(EnvError, match=r"the scorer '.*lambda.*' returned .* expected a finite"):
        play(factory(score=lambda situation: said), say("x"))


def test_a_scorer_that_breaks_is_named() -> None:
    def judge(situation: Situation) -> bool:
        raise KeyError("x")

    with pytest.raises(EnvError, match=r"the scorer '.*judge' raised KeyError: 'x'"):
        play(factory(score=judge), say("x"))


class Scripted:
    """A user that says what it was given, line by line."""

    def __init__(self, *lines: Any) -> None:
        self.lines = list(lines)
        self.heard: list[tuple[str, ...]] = []
        self.closed = 0

    async def reply(self, conversation: Sequence[Message]) -> Message | None:
        self.heard.append(tuple(f"{one.role}: {one.content}" for one in conversation))
        line = self.lines.pop(0) if self.lines else None
        if isinstance(line, Exception):
            raise line
        return Message("user", line) if isinstance(line, str) else line

    async def aclose(self) -> None:
        self.closed += 1


def test_a_user_opens_the_episode_answers_and_ends_it() -> None:
    user = Scripted("my order?", "the \x00 red one", None)
    made = factory(
        instruction="You sell things.",
        user=lambda task, seed: user,
        score=lambda situation: situation.answer == "Bye.",
    )

    async def work(env: ToolEnv) -> list[Any]:
        return [
            await env.reset(),
            *[await env.step(one) for one in (call("look"), say("Which one?"), say("Bye."))],
        ]

    opened, looked, asked, ended = in_episode(made, work)
    assert opened.messages == (Message("system", "You sell things."), Message("user", "my order?"))
    assert looked.observation.messages[0].role == "tool"
    assert asked.observation.messages == (Message("user", "the \ufffd red one"),)
    assert (ended.terminated, ended.success, ended.observation.messages) == (True, True, ())
    # Tools are none of the user's business.
    assert user.heard[-1] == (
        *("user: my order?", "assistant: Which one?", "user: the \ufffd red one"),
        "assistant: Bye.",
    )
    assert user.closed == 1


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((None,), "left before saying anything"),
        (("hi", ""), r"said Message\(role='user', content=''"),
        (("hi", 7), "said 7; expected a Message with text, or None"),
        (("hi", OSError("down")), "the simulated user raised OSError: down"),
        (("hi", UserError("empty twice")), "empty twice"),
    ],
)
def test_a_user_that_fails_is_an_infra_failure(lines: tuple[Any, ...], said: str) -> None:
    with pytest.raises(UserError, match=said):
        play(factory(user=lambda task, seed: Scripted(*lines)), say("hello"))


def keys(made: ToolEnvFactory, *actions: Message) -> list[Any]:
    """Anchors before each action and after the last."""

    async def work(env: ToolEnv) -> list[Any]:
        first = await env.reset()
        return [first.anchor, *[(await env.step(one)).observation.anchor for one in actions]]

    return in_episode(made, work)


def test_the_state_is_what_was_done_and_learnt() -> None:
    made = factory([Box, "calculator"])
    look, sums = call("look"), call("calculator", expression="1 + 1")
    one, two = call("add", number=1), call("add", number=2)
    start, *_ = keys(made, look)
    assert keys(made, look)[0] == start
    assert keys(made, look, sums)[-1] == keys(made, sums, look, sums)[-1]  # in any order, once
    assert keys(made, one, two)[-1] != keys(made, two, one)[-1]  # changes have an order
    assert keys(made, look, one)[-1] != keys(made, one, look)[-1]  # "value 0" and "value 1"
    assert len({start, keys(made, look)[-1], keys(made, one)[-1], keys(made, sums)[-1]}) == 4
    assert keys(made, call("nope"), say(" "), call("add", number="x"))[-1] == start  # nothing ran


def test_anchors_may_be_given_or_left_out() -> None:
    actions = (call("add", number=1), call("add", number=2), call("add", number=-2))
    own = factory(anchor=lambda situation: situation.part(Box).value)
    assert keys(own, *actions) == [0, 1, 3, 1]
    assert keys(factory(anchor=None), *actions) == [None] * 4


def knows_it(task: Task, rng: Any) -> Any:
    shown = yield ToolCall("", "look", {})
    assert shown == "value 0"
    shown = yield [ToolCall("", "look", {}), ToolCall("", "add", {"number": 1})]
    assert shown == "value 0\nok"
    yield task.payload["answer"]


def test_an_expert_demonstrates_also_while_an_event_loop_runs() -> None:
    made = factory(expert=knows_it)

    async def ask() -> list[Any]:
        return list(made.demonstrate(made.tasks("train")[0], seed=1, noise=0.0))

    steps = asyncio.run(ask())
    assert [len(one.action.tool_calls) for one in steps] == [1, 2, 0]
    assert [one.id for one in steps[1].action.tool_calls] == ["call_0", "call_1"]
    assert steps[1].observation.messages[0].tool_call_id == "call_0"
    assert not hasattr(factory(), "demonstrate")  # without an expert it is no Demonstrator


@pytest.mark.parametrize(
    ("yields", "said"),
    [
        ([ToolCall("", "look", {})], "stopped after 1 steps"),
        ([3], "yielded 3; expected a ToolCall"),
        ([[]], r"yielded \[\]"),
    ],
)
def test_an_expert_that_does_not_finish_is_named(yields: list[Any], said: str) -> None:
    def expert(task: Task, rng: Any) -> Any:
        for one in yields:  # noqa: UP028 - a list takes nothing that is sent
            yield one

    made = factory(expert=expert)
    with pytest.raises(DataError, match=said):
        made.demonstrate(made.tasks("train")[0], seed=1, noise=0.0)


def test_problems_are_shared_out_by_content() -> None:
    made, other = factory(), ToolEnvFactory([*reversed(PROBLEMS), PROBLEMS[3]], [Box])
    assert made.splits == ("train", "validation", "test")
    assert sum(len(made.tasks(split)) for split in made.splits) == len(PROBLEMS)
    for split in made.splits:
        assert {one.id for one in made.tasks(split)} == {one.id for one in other.tasks(split)}


def test_problems_may_come_from_files_by_split(tmp_path: Any) -> None:
    (tmp_path / "a.jsonl").write_text('{"question": "1?", "answer": 1, "kind": "easy"}\n\n')
    (tmp_path / "b.jsonl").write_text('{"question": "2?", "answer": ["2", "two"]}\n')
    made = ToolEnvFactory({"train": tmp_path / "a.jsonl", "test": str(tmp_path / "b.jsonl")}, [Box])
    (easy,), (test,) = made.tasks("train"), made.tasks("test")
    assert (easy.kind, test.kind) == ("easy", "")
    assert ToolEnvFactory(tmp_path / "a.jsonl", [Box]).splits


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [
        (lambda: ToolEnvFactory([], [Box]), DataError, "has no problem; give it some"),
        (lambda: ToolEnvFactory(["x"], [Box]), DataError, "problem 1 of the tasks is 'x'; expect"),  # type: ignore[list-item]
        (lambda: ToolEnvFactory([{"a": {1}}], [Box]), DataError, "is no JSON data"),
        (lambda: ToolEnvFactory(3, [Box]), ConfigError, "must be problems"),  # type: ignore[arg-type]
        (
            lambda: ToolEnvFactory("no.jsonl", [Box]),
            ConfigError,
            "cannot read the tasks 'no.jsonl'",
        ),
        (
            lambda: ToolEnvFactory({"a": PROBLEMS[:2], "b": PROBLEMS[1:]}, [Box]),
            DataError,
            "one problem is in the splits 'a' and 'b'",
        ),
        (
            lambda: ToolEnvFactory([{"question": "?"}], [Box]),
            ConfigError,
            "has no scorer, and the problem .* has no 'answer'",
        ),
        (lambda: factory(instruction="{quest}"), DataError, "cannot be filled .*'quest'.*question"),
        (lambda: factory(instruction=" "), DataError, "the instruction of task .* is empty"),
        (lambda: factory(score=3), ConfigError, "score must be a function, got 3"),
        (lambda: factory(score="tests.envs.tools.test_tool_env:no"), ConfigError, "has no 'no'"),
        (lambda: factory(max_steps=0), ConfigError, "max_steps must be 1 or more, got 0"),
        (lambda: factory(anchor="fact"), ConfigError, "anchor must be 'facts', None or a function"),
        (lambda: factory(limits={"call": 3}), ConfigError, "unknown limit 'call'; did you mean"),
        (lambda: factory(limits={"calls": 0}), ConfigError, "calls must be above 0, got 0"),
        (lambda: factory([Box, Box]), ConfigError, "two tools are called"),
        (lambda: factory().tasks("tset"), ConfigError, "no split 'tset'; did you mean 'test'"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(
    make: Callable[[], Any], kind: type[AgentRLError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        make()


class Seat:
    """Take one of four seats."""

    free = 4

    def __init__(self) -> None:
        assert Seat.free > 0, "no seat is free"
        Seat.free -= 1

    async def __call__(self) -> str:
        await asyncio.sleep(3600)
        return ""

    def close(self) -> None:
        Seat.free += 1


def test_what_an_abandoned_episode_held_comes_back() -> None:
    made = factory([Seat])

    async def vanish(env: ToolEnv) -> None:
        await env.reset()
        step = asyncio.ensure_future(env.step(call("seat")))
        await asyncio.sleep(0.005)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step

    for _ in range(10):
        in_episode(made, vanish)
    assert Seat.free == 4
