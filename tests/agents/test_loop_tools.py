"""Calls on their way through the episode loop: told, never run, and trained exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from agentrl.agents.loop import Agent, Budgets, Episode, play
from agentrl.core.message import Message, ParseFailure, ToolCall
from agentrl.core.protocols import Env
from agentrl.core.task import Task
from agentrl.core.trajectory import CreditResult, Group, Sampling, StopReason, Trajectory
from agentrl.dialects.action import ACTION
from agentrl.engines.scripted import ScriptedEngine
from agentrl.learn.rows import rows_from_groups
from agentrl.memory.transcript import Transcript
from agentrl.memory.window import Window
from agentrl.models import train_tokenizer
from agentrl.renderers.plain import PlainRenderer
from agentrl.testing.characters import STOP, CharacterRenderer
from agentrl.testing.tool_env import BOX_TOOLS, BoxEnv

EPISODE = Episode("g", "task", 0, 0, seed=7)
OPEN_0 = '<tool_call>{"name":"open","arguments":{"number":0}}</tool_call>'
BROKEN = '<tool_call>{"name":"open","arguments":{"number":0,}}</tool_call>'
CLOSE_CALL = 0x110002


def ids(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


def agent(answers: Sequence[Any], **changes: Any) -> Agent:
    script = [ids(one) if isinstance(one, str) else one for one in answers]
    plain = Agent(
        engine=ScriptedEngine(script),
        renderer=CharacterRenderer(),
        make_memory=Transcript,
        sampling=Sampling(max_tokens=200),
        action_format="tools",
    )
    return replace(plain, **changes)


def run(player: Agent, env: BoxEnv) -> Trajectory:
    async def make() -> Env:
        return env

    return asyncio.run(play(player, make, EPISODE))


def trained_tokens(trajectory: Trajectory) -> int:
    """Tokens with a mask of 1 in the rows of the trajectory."""
    group = Group("g", Task("task", "box", "train", {}), (trajectory,))
    credit = CreditResult([[1.0] * len(trajectory.steps)])
    rows = rows_from_groups([group], credit, trajectory_weighting="equal")
    return sum(sum(row.action_mask) for row in rows)


def test_a_call_is_run_and_the_next_message_ends_the_episode() -> None:
    env = BoxEnv()
    trajectory = run(agent([f"<think>look</think>{OPEN_0}", "cat"]), env)
    first, last = trajectory.steps
    call = ToolCall("call_0", "open", {"number": 0})
    assert first.action == Message("assistant", "", "look", (call,))
    assert first.said.content == f"<think>look</think>{OPEN_0}"
    assert (first.parse_status, first.action_key) == ("ok", 'open {"number":0}')
    assert last.action == Message("assistant", "cat")
    assert (trajectory.stop_reason, trajectory.success) == (StopReason.TERMINATED, True)


def test_bad_json_is_told_to_the_model_and_the_episode_goes_on() -> None:
    env = BoxEnv()
    trajectory = run(agent([BROKEN, OPEN_0, "cat"]), env)
    assert [step.parse_status for step in trajectory.steps] == ["parse_error", "ok", "ok"]
    assert trajectory.steps[0].result is not None
    (told,) = trajectory.steps[0].result.observation.messages
    assert (told.role, told.tool_call_id) == ("tool", "call_0")
    assert told.content.startswith("error: invalid JSON: ")
    assert "error: invalid JSON: " in CharacterRenderer().decode(trajectory.steps[1].prompt_ids)
    assert env.run == [("open", {"number": 0})]
    assert trajectory.steps[0].action_key == ""
    # The tokens of the bad turn are trained like any other, as they were sampled.
    assert trajectory.steps[0].sample.token_ids == (*ids(BROKEN), STOP)
    assert trained_tokens(trajectory) == trajectory.sampled_tokens


def test_an_unknown_tool_is_answered_with_the_tools_there_are() -> None:
    env = BoxEnv()
    trajectory = run(agent(['<tool_call>{"name":"nope"}</tool_call>', "cat"]), env)
    result = trajectory.steps[0].result
    assert result is not None
    assert "there are: open, note" in result.observation.messages[0].content
    assert result.metrics == {"tool_failure": 1.0}
    assert (trajectory.steps[0].parse_status, trajectory.success) == ("ok", True)


def test_several_calls_are_answered_in_order_each_with_its_id() -> None:
    calls = f'{OPEN_0}\n<tool_call>{{"name":"open","arguments":[]}}</tool_call>\n{OPEN_0}'
    env = BoxEnv()
    trajectory = run(agent([calls, "cat"]), env)
    result = trajectory.steps[0].result
    assert result is not None
    messages = result.observation.messages
    assert [one.tool_call_id for one in messages] == ["call_0", "call_1", "call_2"]
    assert [one.content.startswith("error:") for one in messages] == [False, True, False]
    assert trajectory.steps[0].parse_status == "parse_error"
    assert len(env.run) == 2


def test_a_truncated_call_is_told_and_never_executed_even_where_it_looks_whole() -> None:
    cut = agent([OPEN_0, "cat"], sampling=Sampling(max_tokens=len(OPEN_0)))
    env = BoxEnv()
    trajectory = run(cut, env)
    first = trajectory.steps[0]
    assert first.sample.finish_reason == "length"
    assert first.sample.token_ids == ids(OPEN_0)
    assert first.parse_status == "truncated"
    assert env.run == []
    assert first.result is not None
    assert "cut at its length limit" in first.result.observation.messages[0].content
    assert trained_tokens(trajectory) == trajectory.sampled_tokens


@pytest.mark.parametrize(
    ("budgets", "steps", "reason"),
    [
        (Budgets(max_steps=9, max_truncated=3), 3, StopReason.MAX_TOKENS),
        (Budgets(max_steps=9, max_truncated=1), 1, StopReason.MAX_TOKENS),
        (Budgets(max_steps=9), 9, StopReason.MAX_STEPS),
    ],
)
def test_a_policy_that_is_cut_again_and_again_does_not_go_on_for_ever(
    budgets: Budgets, steps: int, reason: StopReason
) -> None:
    cut = agent(["x" * 50] * 20, sampling=Sampling(max_tokens=20), budgets=budgets)
    env = BoxEnv()
    trajectory = run(cut, env)
    assert (len(trajectory.steps), trajectory.stop_reason) == (steps, reason)
    assert {step.parse_status for step in trajectory.steps} == {"truncated"}
    assert (trajectory.success, env.run, env.closed) == (False, [], True)


def test_answers_that_are_cut_now_and_then_do_not_end_the_episode() -> None:
    long = "x" * 90
    answers = [long, OPEN_0, long, OPEN_0, "cat"]
    cut = agent(
        answers, sampling=Sampling(max_tokens=80), budgets=Budgets(max_steps=9, max_truncated=2)
    )
    assert run(cut, BoxEnv()).success is True


def test_an_empty_answer_has_one_sampled_token_and_is_told() -> None:
    env = BoxEnv()
    trajectory = run(agent([(STOP,), "cat"]), env)
    first = trajectory.steps[0]
    assert (first.sample.token_ids, first.parse_status) == ((STOP,), "empty_action")
    assert (first.action.content, first.action_key) == ("", "")
    assert first.result is not None
    assert first.result.action_valid is False
    assert trajectory.scored
    assert trained_tokens(trajectory) == trajectory.sampled_tokens


def test_a_call_drafted_in_thinking_does_not_reach_the_environment() -> None:
    draft = '<think>maybe <tool_call>{"name":"note","arguments":{"text":"x"}}</tool_call></think>'
    env = BoxEnv()
    run(agent([draft + OPEN_0, "cat"]), env)
    assert [name for name, _ in env.run] == ["open"]


@dataclass(frozen=True, slots=True)
class StopsAtCalls(CharacterRenderer):
    """One more id, ``</tool_call>``, which ends an answer as a server's stop word does."""

    @property
    def stop_token_ids(self) -> Sequence[int]:
        return (STOP, CLOSE_CALL)

    def parse(self, token_ids: Sequence[int]) -> Message | ParseFailure:
        text = "".join(chr(one) for one in token_ids if one < 0x110000)
        closed = "</tool_call>" if CLOSE_CALL in token_ids else ""
        return Message("assistant", text + closed)


@pytest.mark.parametrize("make_memory", [Transcript, lambda: Window(1), lambda: Window(0)])
@pytest.mark.parametrize("append_only", [True, False])
def test_each_sampled_id_is_trained_once_in_every_view_of_the_history(
    make_memory: Any, append_only: bool
) -> None:
    # The closing markup is the model's own token: it is sampled once, and nobody adds another.
    opening = (*ids(OPEN_0.removesuffix("</tool_call>")), CLOSE_CALL)
    answers = [opening, f"{OPEN_0}\n{OPEN_0}", (*ids(BROKEN[:-12]), CLOSE_CALL), "cat"]
    renderer = StopsAtCalls(append_only=append_only)
    trajectory = run(agent(answers, renderer=renderer, make_memory=make_memory), BoxEnv())
    statuses = [step.parse_status for step in trajectory.steps]
    assert statuses == ["ok", "ok", "parse_error", "ok"]
    first = trajectory.steps[0].sample
    assert (first.token_ids, first.finish_reason) == (opening, "stop")
    spans = [span for segment in trajectory.segments() for span in segment.spans]
    assert sum(end - start for start, end in spans) == trajectory.sampled_tokens
    assert trained_tokens(trajectory) == trajectory.sampled_tokens
    assert trajectory.sampled_tokens == sum(
        len(one) + (STOP not in one and CLOSE_CALL not in one)
        for one in (ids(two) if isinstance(two, str) else two for two in answers)
    )


def test_a_tiny_models_whole_episode_with_tools() -> None:
    tokenizer = train_tokenizer(["What is in box 0? cat", "<action>open"], 300)
    renderer = PlainRenderer(tokenizer)
    call = Message("assistant", "", tool_calls=(ToolCall("", "open", {"number": 0}),))
    said = [renderer.encode_action(one) for one in (call, Message("assistant", "cat"))]
    player = agent(said, renderer=renderer, dialect=renderer.dialect)
    assert player.dialect is ACTION
    trajectory = run(player, BoxEnv())
    assert trajectory.success is True
    (segment,) = trajectory.segments()
    assert renderer.decode(segment.token_ids) == (
        "open(number: integer): Open the box of a number and say what is in it.\n"
        "note(text: string): Write a text down.<|next|>What is in box 0?<|turn|>"
        '<action>open {"number": 0}</action><|end|>cat<|turn|>cat<|end|>'
    )
    assert segment.token_ids[: len(trajectory.steps[0].prompt_ids)] == tuple(
        renderer.start(trajectory.steps[0].shown, BOX_TOOLS)
    )
