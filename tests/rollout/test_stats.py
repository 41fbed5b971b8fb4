"""Counters: their sums hold at every moment, and they are read from another thread."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

from agentrl.core.task import Task
from agentrl.core.trajectory import StepResult
from agentrl.rollout.stats import RolloutCounts, RolloutStats
from agentrl.rollout.thread import LoopThread
from agentrl.testing.faults import Fault, FaultyFactory
from agentrl.testing.scripts import ScriptedEnv, ScriptedFactory, say
from tests.rollout.playing import WIN, agent, corridor, requests, run, runner


def test_what_is_counted_is_what_was_played() -> None:
    factory = corridor()
    asked = requests(factory, 3, 2)
    bad = asked[1].task
    playing = runner(
        FaultyFactory(factory, Fault("nan_reward", step=1, chooses=lambda task, _: task == bad)),
        retries=1,
    )
    groups = run(playing.run(asked))
    counts = playing.stats.counts()
    played = [one for group in groups for one in group.trajectories]
    won = [one for one in played if one.failure is None]
    assert (counts.requested, counts.finished, counts.failed, counts.retried) == (6, 4, 2, 2)
    assert counts.failures == {"step/EnvError": 4}
    assert counts.steps == sum(len(one.steps) for one in won) + 4
    assert counts.sampled_tokens >= sum(one.sampled_tokens for one in won)
    prompts = sum(len(step.prompt_ids) for one in won for step in one.steps)
    assert counts.prompt_tokens > prompts
    assert set(counts.seconds) == {"make", "reset", "memory", "sample", "step", "wait"}
    assert all(seconds >= 0 for seconds in counts.seconds.values())


def test_the_difference_of_two_moments_is_what_happened_between() -> None:
    factory = corridor()
    stats = RolloutStats()
    first, second = requests(factory, 2)
    playing = replace(runner(factory), stats=stats)
    run(playing.run([first]))
    between = stats.counts()
    run(playing.run([second]))
    change = stats.counts().since(between)
    assert (change.requested, change.finished, change.groups) == (3, 3, 1)
    assert change.steps == stats.counts().steps - between.steps
    assert stats.counts().since(stats.counts()) == RolloutCounts()
    assert change.to_data()["finished"] == 3


def test_another_thread_sees_who_waits_for_what_and_the_sums_hold_meanwhile() -> None:
    release = threading.Event()

    async def step(task: Task) -> StepResult:
        if task.payload["number"] < 3:
            await asyncio.to_thread(release.wait, 20.0)
        return WIN

    factory = ScriptedFactory(lambda task, _: ScriptedEnv(say("s"), [lambda: step(task)]), count=40)
    patient = agent(deadlines=replace(agent().deadlines, step_s=60.0))
    playing = runner(factory, patient, concurrency=6)
    sums: list[bool] = []

    def look() -> None:
        while playing.stats.counts().finished < 37:
            counts = playing.stats.counts()
            sums.append(counts.under_way >= playing.stats.in_flight >= 0)
        waiting = playing.stats.waiting()
        sums.append([one.place for one in waiting] == ["step"] * 3)
        sums.append({one.env for one in waiting} == {"scripted"})
        sums.append(waiting[0].since_s <= waiting[-1].since_s)
        release.set()

    watching = threading.Thread(target=look, daemon=True)
    with LoopThread() as loop:
        watching.start()
        loop.run(playing.run(requests(factory, 40, 1)))
    watching.join(20)
    assert sums[-3:] == [True, True, True]
    assert playing.stats.counts().finished == 40
