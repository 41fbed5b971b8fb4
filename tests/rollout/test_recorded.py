"""What was played before a run was killed is not played again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from agentrl.agents.loop import Agent
from agentrl.core.errors import DataError, EnvError
from agentrl.core.task import Task
from agentrl.core.trajectory import Group, Sampling, StepResult, Trajectory
from agentrl.engines.scripted import ScriptedEngine
from agentrl.memory.transcript import Transcript
from agentrl.rollout.runner import GroupRequest, Limits, Runner
from agentrl.testing.characters import CharacterRenderer
from agentrl.testing.scripts import ScriptedEnv, ScriptedFactory, say

WIN = StepResult(say(), 1.0, terminated=True, success=True)


def win(_task: Task, _attempt: int) -> ScriptedEnv:
    return ScriptedEnv(say("s"), [WIN])


def crash(_task: Task, _attempt: int) -> ScriptedEnv:
    return ScriptedEnv(say("s"), [EnvError("broken")])


def play(
    factory: ScriptedFactory,
    recorded: Mapping[int, Trajectory],
    *,
    retries: int = 1,
    seed: int = 5,
) -> tuple[Group, list[str]]:
    """One group of three; the ids of what was played for it now."""
    kept: list[str] = []
    agent = Agent(
        engine=ScriptedEngine(lambda prompt, index: (97,)),
        renderer=CharacterRenderer(),
        make_memory=Transcript,
        sampling=Sampling(max_tokens=4),
        action_format="bare",
    )
    runner = Runner(
        factory,
        agent,
        Limits(retries=retries, give_up_after=99),
        lambda _, one: kept.append(one.id),
        lambda _: recorded,
    )
    (task,) = factory.tasks("train")
    (group,) = asyncio.run(runner.run([GroupRequest("g", task, 3, seed)]))
    return group, sorted(kept)


def by_trial(group: Group) -> dict[int, Trajectory]:
    return {one.trial: one for one in group.trajectories}


def test_only_what_is_missing_is_played() -> None:
    whole, everything = play(ScriptedFactory(win), {})
    assert everything == ["g/0/0", "g/1/0", "g/2/0"]
    known = by_trial(whole)
    del known[1]
    again = ScriptedFactory(win)
    group, played = play(again, known)
    assert played == ["g/1/0"]
    assert len(again.made) == 1
    assert group.trajectories[0] is whole.trajectories[0]
    assert [one.seed for one in group.trajectories] == [one.seed for one in whole.trajectories]


def test_a_failed_attempt_is_followed_by_the_next_one() -> None:
    whole, _ = play(ScriptedFactory(win), {})
    failed, _ = play(ScriptedFactory(crash), {}, retries=0)
    known = by_trial(failed) | {0: whole.trajectories[0]}
    group, played = play(ScriptedFactory(win), known, retries=1)
    assert played == ["g/1/1", "g/2/1"]
    assert all(one.failure is None for one in group.trajectories)


def test_a_task_that_used_up_its_attempts_is_not_drawn_again() -> None:
    whole, _ = play(ScriptedFactory(win), {})
    failed, _ = play(ScriptedFactory(crash), {}, retries=1)
    known = {0: whole.trajectories[0], 1: failed.trajectories[1], 2: failed.trajectories[2]}
    group, played = play(ScriptedFactory(win), known, retries=1)
    assert played == []
    assert {one.trial: one for one in group.trajectories} == known


def test_a_run_that_stopped_because_everything_failed_can_go_on() -> None:
    failed, _ = play(ScriptedFactory(crash), {}, retries=1)
    group, played = play(ScriptedFactory(win), by_trial(failed), retries=1)
    assert played == ["g/0/2", "g/1/2", "g/2/2"]
    assert all(one.success for one in group.trajectories)
    _, played = play(ScriptedFactory(crash), by_trial(failed), retries=1)
    assert played == ["g/0/2", "g/0/3", "g/1/2", "g/1/3", "g/2/2", "g/2/3"]


def test_episodes_of_another_run_are_refused() -> None:
    whole, _ = play(ScriptedFactory(win), {})
    with pytest.raises(DataError, match=r"'g/0/0' was recorded for task \w+ with seed"):
        play(ScriptedFactory(win), by_trial(whole), seed=6)
    other = {0: replace(whole.trajectories[0], task_id="other")}
    with pytest.raises(DataError, match="recorded for task other"):
        play(ScriptedFactory(win), other)
