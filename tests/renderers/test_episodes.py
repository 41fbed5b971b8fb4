"""Whole episodes through the loop: families' templates, what is trained, and what is counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentrl.agents.loop import Agent, Episode, play
from agentrl.core.message import Message
from agentrl.core.task import Task
from agentrl.core.trajectory import (
    CreditResult,
    Group,
    Observation,
    Row,
    Sampling,
    StepResult,
    StopReason,
    Trajectory,
)
from agentrl.engines.scripted import ScriptedEngine
from agentrl.learn.rows import rows_from_groups
from agentrl.memory.transcript import Transcript
from agentrl.renderers.chat import ChatRenderer
from agentrl.rollout.stats import RolloutStats
from agentrl.testing.chat_families import family_tokenizer, template_files
from agentrl.testing.scripts import ScriptedEnv, say

FAMILIES = ("qwen2_5", "qwen3", "qwen3_5_think", "llama3_2", "gemma3", "glm4moe", "deepseekv3")


def result(*messages: Message, over: bool = False) -> StepResult:
    return StepResult(Observation(messages), 1.0 if over else 0.0, terminated=over, success=over)


def chat(template: str, history: Any = "append") -> ChatRenderer:
    file = template_files()[template]
    return ChatRenderer(
        family_tokenizer(template), template=file, history=history, date="2026-01-31"
    )


def answers(renderer: ChatRenderer, count: int, *, think: bool = True) -> list[list[int]]:
    """Answers that think, as far as the prompt leaves room for a thought."""
    opened = renderer.decode(renderer.start([Message("user", "x")])).rstrip().endswith("<think>")
    thought = ("" if opened else "<think>") + "it is near</think>"
    closed = renderer.decode(renderer.start([Message("user", "x")])).rstrip().endswith("</think>")
    texts = [(thought if think and not closed else "") + f"go {number}" for number in range(count)]
    tokenizer = family_tokenizer(renderer_name(renderer))
    stop = renderer.stop_token_ids[0]
    return [[*tokenizer.encode(text, add_special_tokens=False), stop] for text in texts]


def renderer_name(renderer: ChatRenderer) -> str:
    return next(
        name
        for name, file in template_files().items()
        if file.read_text(encoding="utf-8") == renderer.template_source
    )


def played(renderer: ChatRenderer, env: ScriptedEnv, script: list[list[int]]) -> Trajectory:
    agent = Agent(
        engine=ScriptedEngine(script),
        renderer=renderer,
        make_memory=Transcript,
        sampling=Sampling(max_tokens=64),
        action_format="bare",
        system_prompt="Be brief.",
    )

    async def make() -> ScriptedEnv:
        return env

    return asyncio.run(play(agent, make, Episode("g", "t", 0, 0, 0)))


def three_steps() -> ScriptedEnv:
    replies = (
        [Message("tool", f"room {n}", tool_call_id="call_0"), Message("user", "on")] for n in (1, 2)
    )
    return ScriptedEnv(
        say("Find a mug.", "You are in a room."),
        [*(result(*reply) for reply in replies), result(over=True)],
    )


def rows_of(trajectory: Trajectory) -> tuple[Row, ...]:
    group = Group("g", Task("t", "scripted", "train"), (trajectory,))
    credit = CreditResult(((1.0,) * len(trajectory.steps),))
    return tuple(rows_from_groups([group], credit, trajectory_weighting="equal"))


@pytest.mark.parametrize("template", FAMILIES)
def test_with_append_an_episode_is_one_row_and_its_prompts_are_those_of_the_parts(
    template: str,
) -> None:
    renderer = chat(template)
    script = answers(renderer, 3)
    trajectory = played(renderer, three_steps(), script)
    assert trajectory.stop_reason is StopReason.TERMINATED
    (row,) = trajectory.segments()
    assert [list(row.token_ids[start:end]) for start, end in row.spans] == script
    # B8: the messages of reset stand in the first prompt, behind the instruction.
    head = [Message("system", "Be brief."), *say("Find a mug.", "You are in a room.").messages]
    first = renderer.start(head)
    assert list(row.token_ids[: len(first)]) == first
    assert row.spans[0][0] == len(first)
    stats = RolloutStats()
    stats.ended(trajectory)
    assert stats.counts().forks == 0


@pytest.mark.parametrize(
    ("template", "forks"),
    [("qwen2_5", 0), ("llama3_2", 0), ("gemma3", 0), ("qwen3", 2), ("qwen3_5_think", 2)],
)
def test_with_template_every_rewriting_begins_a_row_and_is_counted(
    template: str, forks: int
) -> None:
    renderer = chat(template, "template")
    script = answers(renderer, 3, think=forks > 0)
    trajectory = played(renderer, three_steps(), script)
    segments = trajectory.segments()
    assert len(segments) == forks + 1
    sampled = [
        list(segment.token_ids[start:end]) for segment in segments for start, end in segment.spans
    ]
    assert sampled == script
    stats = RolloutStats()
    stats.ended(trajectory)
    assert stats.counts().forks == forks


@pytest.mark.parametrize("history", ["append", "template"])
@pytest.mark.parametrize("template", FAMILIES)
def test_exactly_the_sampled_tokens_are_trained(template: str, history: str) -> None:
    # B6, B9: a closing mark, a stop token, a thought: each once, whatever the history.
    renderer = chat(template, history)
    script = answers(renderer, 3)
    rows = rows_of(played(renderer, three_steps(), script))
    assert sum(sum(row.action_mask) for row in rows) == sum(map(len, script))
    trained = [
        token
        for row in rows
        for token, on in zip(row.token_ids, row.action_mask, strict=True)
        if on
    ]
    assert trained == [token for ids in script for token in ids]


@pytest.mark.parametrize("template", ["qwen2_5", "gemma3"])
def test_an_episode_without_a_sampled_token_has_no_row(template: str) -> None:
    # B10: an environment that speaks as the assistant is refused, and nothing of it is trained.
    made_up = Message("assistant", "max iterations reached")
    env = ScriptedEnv(say("Find a mug."), [result(made_up)])
    renderer = chat(template)
    trajectory = played(renderer, env, answers(renderer, 1))
    assert trajectory.failure is not None
    assert "assistant" in trajectory.failure.message
    assert trajectory.segments() == ()
    group = Group("g", Task("t", "scripted", "train"), (trajectory,))
    assert not rows_from_groups([group], CreditResult((None,)), trajectory_weighting="equal")
