"""Planted faults happen where, when and to whom they are told to."""

from __future__ import annotations

import asyncio
import math
import time

import pytest

from agentrl.core.errors import ConfigError, EnvError
from agentrl.core.message import Message
from agentrl.core.task import Task
from agentrl.core.trajectory import StepResult
from agentrl.envs.toy import ToyFactory
from agentrl.testing.faults import Fault, FaultPlace, FaultyFactory, PlantedBug

STEP = Message("assistant", "go left")


async def play(factory: FaultyFactory, steps: int, *, seed: int = 0) -> list[StepResult]:
    env = await factory.make(factory.tasks("train")[0], seed=seed)
    try:
        await env.reset()
        return [await env.step(STEP) for _ in range(steps)]
    finally:
        await env.aclose()


def faulty(fault: Fault) -> FaultyFactory:
    return FaultyFactory(ToyFactory(), fault)


@pytest.mark.parametrize("at", ["make", "reset", "close"])
def test_it_raises_where_it_is_planted(at: FaultPlace) -> None:
    factory = faulty(Fault("raise", at=at))
    with pytest.raises(EnvError, match=f"planted fault at {at}"):
        asyncio.run(play(factory, 1))
    assert factory.opened == factory.closed == (0 if at == "make" else 1)


def test_only_the_told_step_breaks() -> None:
    factory = faulty(Fault("bug", step=2))
    assert len(asyncio.run(play(factory, 2))) == 2
    with pytest.raises(PlantedBug):
        asyncio.run(play(factory, 3))


def test_the_second_attempt_may_succeed() -> None:
    factory = faulty(Fault("raise", attempts=1))
    with pytest.raises(EnvError):
        asyncio.run(play(factory, 1))
    assert len(asyncio.run(play(factory, 1))) == 1
    with pytest.raises(EnvError):  # another seed is another episode
        asyncio.run(play(factory, 1, seed=1))


def test_episodes_are_chosen_by_seed_and_not_by_order() -> None:
    factory = faulty(Fault("raise", chooses=lambda task, seed: seed == 3))
    broken = []
    for seed in (5, 3, 1):
        try:
            asyncio.run(play(factory, 1, seed=seed))
        except EnvError:
            broken.append(seed)
    assert broken == [3]


def test_a_hang_can_be_cancelled() -> None:
    async def hang() -> None:
        async with asyncio.timeout(0.05):
            await play(factory, 1)

    factory = faulty(Fault("hang"))
    with pytest.raises(TimeoutError):
        asyncio.run(hang())
    assert factory.opened == factory.closed == 1


def test_a_late_answer_comes_although_it_was_cancelled() -> None:
    async def late() -> list[StepResult]:
        playing = asyncio.create_task(play(factory, 1))
        await asyncio.sleep(0.01)
        playing.cancel()
        return await playing

    factory = faulty(Fault("late", late_s=0.01))
    assert len(asyncio.run(late())) == 1
    assert factory.opened == factory.closed == 1


def test_an_exit_a_cancellation_of_its_own_and_a_slow_answer() -> None:
    with pytest.raises(SystemExit):
        asyncio.run(play(faulty(Fault("exit")), 1))

    async def cancelled() -> None:
        with pytest.raises(asyncio.CancelledError):
            await play(faulty(Fault("cancel")), 1)

    asyncio.run(cancelled())
    assert len(asyncio.run(play(faulty(Fault("slow", late_s=0.001)), 1))) == 1


def test_a_plan_says_what_breaks_for_each_attempt() -> None:
    def plan(task: Task, seed: int, attempt: int) -> Fault | None:
        return [Fault("raise"), None, Fault("bug")][attempt]

    factory = FaultyFactory(ToyFactory(), plan)
    with pytest.raises(EnvError):
        asyncio.run(play(factory, 1))
    assert len(asyncio.run(play(factory, 1))) == 1
    with pytest.raises(PlantedBug):
        asyncio.run(play(factory, 1))


def test_a_block_holds_the_thread_for_its_time() -> None:
    started = time.perf_counter()
    asyncio.run(play(faulty(Fault("block", block_s=0.05)), 1))
    assert time.perf_counter() - started >= 0.05


def test_answers_are_spoilt_as_told() -> None:
    def first(fault: Fault) -> StepResult:
        return asyncio.run(play(faulty(fault), 1))[0]

    reward = first(Fault("nan_reward")).reward
    assert reward is not None
    assert math.isnan(reward)
    assert first(Fault("infinite_reward")).reward == math.inf
    assert first(Fault("no_reward")).reward is None
    assert first(Fault("not_a_result")) is None
    oversized = first(Fault("oversized")).observation.messages
    assert [len(message.content) for message in oversized] == [70_839]


def test_a_fault_that_cannot_happen_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="'nan_reward' cannot happen at 'reset'; it can at: step"):
        Fault("nan_reward", at="reset")
