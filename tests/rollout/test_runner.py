"""The runner: whole groups, bounded retries; one bad episode harms nobody."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from agentrl.agents.loop import Agent, Deadlines
from agentrl.core.errors import EpisodeError
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import Group, Sampling, StepResult, Trajectory
from agentrl.engines.scripted import ScriptedEngine
from agentrl.memory.transcript import Transcript
from agentrl.rollout.runner import GroupRequest, Limits, Runner, refuse_if_nothing_finished
from agentrl.rollout.thread import LoopThread
from agentrl.testing.characters import CharacterRenderer
from agentrl.testing.scripts import ScriptedEnv, ScriptedFactory, say
from agentrl.testing.simulated_time import run_simulated

WIN = StepResult(say(), 1.0, terminated=True, success=True)


def win(_task: Task, _attempt: int) -> ScriptedEnv:
    return ScriptedEnv(say("s"), [WIN])


def runner(
    factory: ScriptedFactory, *, kept: list[Trajectory] | None = None, **limits: Any
) -> Runner:
    agent = Agent(
        engine=ScriptedEngine(lambda prompt, index: (97,)),
        renderer=CharacterRenderer(),
        make_memory=Transcript,
        sampling=Sampling(max_tokens=4),
        action_format="bare",
        deadlines=Deadlines(step_s=0.2),
    )
    keep = [] if kept is None else kept
    return Runner(factory, agent, Limits(**limits), lambda _, one: keep.append(one))


def requests(factory: ScriptedFactory, size: int = 2) -> list[GroupRequest]:
    return [GroupRequest(f"g{task.id}", task, size, seed=5) for task in factory.tasks("train")]


def play(factory: ScriptedFactory, size: int = 2, **limits: Any) -> list[Group]:
    return run_simulated(runner(factory, **limits).run(requests(factory, size)))


def test_groups_come_back_whole_in_the_order_asked_for() -> None:
    factory = ScriptedFactory(win, count=5)
    groups = play(factory, size=3, concurrency=2)
    assert [group.task for group in groups] == list(factory.tasks("train"))
    assert [[one.trial for one in group.trajectories] for group in groups] == [[0, 1, 2]] * 5


@pytest.mark.parametrize("concurrency", [1, 3, 64])
def test_seeds_depend_on_task_and_trial_alone(concurrency: int) -> None:
    factory = ScriptedFactory(win, count=4)
    groups = play(factory, concurrency=concurrency)
    for group in groups:
        for one in group.trajectories:
            assert one.seed == derive_seed(5, one.task_id, one.trial)
    assert sorted(factory.seeds) == sorted(
        (one.task_id, one.seed) for group in groups for one in group.trajectories
    )


def test_no_more_episodes_are_in_flight_than_allowed() -> None:
    in_flight, most = 0, 0

    async def slow() -> StepResult:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0.002)
        in_flight -= 1
        return WIN

    play(ScriptedFactory(lambda *_: ScriptedEnv(say("s"), [slow]), count=9), concurrency=4)
    assert most == 4


def test_one_bad_episode_is_retried_with_a_fresh_environment_and_its_siblings_finish() -> None:
    # One of eight raises at its third step, once.
    tasks = ScriptedFactory(win, count=8).tasks("train")
    step = StepResult(say("m"), 0.0, terminated=False)

    def script(task: Task, attempt: int) -> ScriptedEnv:
        bad = task == tasks[3] and attempt == 0
        return ScriptedEnv(say("s"), [step, step, OSError("flaky") if bad else WIN])

    kept: list[Trajectory] = []
    factory = ScriptedFactory(script, count=8)
    groups = run_simulated(runner(factory, kept=kept, retries=1).run(requests(factory, 1)))
    assert all(one.success for group in groups for one in group.trajectories)
    assert [one.attempt for group in groups for one in group.trajectories] == [
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        0,
    ]
    (failed,) = [one for one in kept if one.failure]
    assert failed.id.endswith("/0/0")
    assert len(kept) == 9  # the failed attempt is on record too
    assert all(env.resets == env.closes == 1 for env in factory.made)


def test_a_failure_that_lasts_is_recorded_with_its_cause_and_never_scored() -> None:
    tasks = ScriptedFactory(win, count=3).tasks("train")

    def script(task: Task, attempt: int) -> ScriptedEnv:
        return ScriptedEnv(say("s"), [OSError("broken")]) if task == tasks[1] else win(task, 0)

    groups = play(ScriptedFactory(script, count=3), size=1, retries=2)
    (bad,) = groups[1].trajectories
    assert bad.failure is not None
    assert "broken" in bad.failure.message
    assert (bad.attempt, bad.reward) == (2, None)
    assert groups[0].trajectories[0].success
    assert groups[2].trajectories[0].success


def test_a_hanging_environment_is_given_up_and_the_others_are_not_delayed_by_it() -> None:
    tasks = ScriptedFactory(win, count=2).tasks("train")

    def script(task: Task, attempt: int) -> ScriptedEnv:
        hang = ScriptedEnv(say("s"), [asyncio.Event().wait])
        return hang if task == tasks[0] else win(task, attempt)

    hung, fine = play(ScriptedFactory(script, count=2), size=1, retries=0)
    assert hung.trajectories[0].failure is not None
    assert fine.trajectories[0].success


def test_when_nothing_can_succeed_the_run_stops_and_says_the_first_cause() -> None:
    factory = ScriptedFactory(lambda *_: ScriptedEnv(say("s"), [OSError("no display")]), count=50)
    with pytest.raises(EpisodeError, match=r"6 episodes in a row failed.*no display"):
        play(factory, size=1, retries=1, give_up_after=6, concurrency=2)
    assert len(factory.made) < 12
    assert all(env.closes == 1 for env in factory.made)


def test_a_rollout_of_which_nothing_finished_stops_the_run_however_small_it_was() -> None:
    factory = ScriptedFactory(lambda *_: ScriptedEnv(say("s"), [OSError("no display")]), count=2)
    with pytest.raises(EpisodeError, match=r"all 2 episodes failed.*no display"):
        refuse_if_nothing_finished(play(factory, size=1, retries=1, give_up_after=16))
    refuse_if_nothing_finished(play(ScriptedFactory(win, count=2)))


def test_a_bug_stops_everything_at_once_and_leaves_nothing_open() -> None:
    factory = ScriptedFactory(win, count=20)
    faulty = runner(factory, concurrency=3)

    def broken(_request: GroupRequest, _trajectory: Trajectory) -> None:
        raise KeyError("a bug of ours")

    stopping = Runner(faulty.factory, faulty.agent, faulty.limits, broken)
    with pytest.raises(KeyError, match="a bug of ours"):
        run_simulated(stopping.run(requests(factory)))
    assert all(env.closes == 1 for env in factory.made)


def test_the_loop_thread_hands_over_results_and_errors() -> None:
    async def name() -> str:
        return threading.current_thread().name

    async def fail() -> None:
        raise ValueError("from the loop")

    with LoopThread() as loop:
        assert loop.run(name()) == "episodes"
        with pytest.raises(ValueError, match="from the loop"):
            loop.run(fail())
        assert loop.run(name()) == "episodes"


def test_leaving_the_loop_thread_cancels_and_finishes_what_still_runs() -> None:
    closed = threading.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def begin() -> None:
        background.append(asyncio.create_task(forever()))
        await asyncio.sleep(0)

    background: list[asyncio.Task[None]] = []
    with LoopThread() as loop:
        loop.run(begin())
    assert closed.is_set()
