"""Groups as they are complete: order, limits, lookahead, endless requests, ends of both kinds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace

import pytest

from agentrl.core.errors import DataError, EpisodeError
from agentrl.core.task import Task
from agentrl.core.trajectory import StepResult
from agentrl.engines.scripted import Delay, ScriptedEngine
from agentrl.rollout.runner import GroupRequest, Runner
from agentrl.rollout.thread import LoopThread
from agentrl.testing.scripts import ScriptedEnv, ScriptedFactory, say
from tests.rollout.playing import WIN, Improvised, agent, corridor, finished, requests, run, runner

Steps = Callable[[Task], Awaitable[StepResult]]


def stepping(steps: Steps, count: int = 6) -> ScriptedFactory:
    """Tasks whose one step is ``steps(task)``."""
    return ScriptedFactory(
        lambda task, _: ScriptedEnv(say("s"), [lambda: steps(task)]), count=count
    )


def number(task: Task) -> int:
    return int(task.payload["number"])


async def names(playing: Runner, asked: list[GroupRequest]) -> list[str]:
    async with playing.stream(asked) as groups:
        return [group.id async for group in groups]


def test_groups_come_in_the_order_in_which_they_are_complete_and_whole() -> None:
    async def scenario() -> list[str]:
        gates = [asyncio.Event() for _ in range(3)]
        gates[2].set()

        async def step(task: Task) -> StepResult:
            await gates[number(task)].wait()
            return WIN

        factory = stepping(step, 3)
        order = []
        async with runner(factory).stream(requests(factory, 3)) as groups:
            async for group in groups:
                assert [one.trial for one in group.trajectories] == [0, 1, 2]
                order.append(group.id)
                gates[max(0, number(group.task) - 1)].set()
        return order

    assert run(scenario()) == ["g2", "g1", "g0"]


def test_what_a_stream_gives_is_what_run_gives() -> None:
    async def streamed() -> dict[object, object]:
        factory = corridor()
        async with runner(factory, concurrency=5).stream(requests(factory)) as groups:
            return dict(finished([group async for group in groups]))

    async def whole() -> dict[object, object]:
        factory = corridor()
        return dict(finished(await runner(factory).run(requests(factory))))

    assert run(streamed()) == run(whole())


def test_a_slot_is_refilled_the_moment_an_episode_ends() -> None:
    # One of two slots is held for ever by the first episode; all the others go through the second.
    async def scenario() -> None:
        held, done = asyncio.Event(), asyncio.Event()
        seen = 0

        async def step(task: Task) -> StepResult:
            nonlocal seen
            if number(task) == 0:
                await held.wait()
            seen += 1
            if seen == 5:
                done.set()
            return WIN

        factory = stepping(step)
        playing = runner(factory, agent(deadlines=replace(agent().deadlines, step_s=20)))
        playing = replace(playing, limits=replace(playing.limits, concurrency=2))
        going = asyncio.create_task(names(playing, requests(factory, 6, 1)))
        await done.wait()
        held.set()
        assert (await going)[-1] == "g0"

    run(scenario())


@pytest.mark.parametrize("limit", [1, 3])
def test_no_environment_has_more_episodes_than_its_limit_and_others_are_not_held_up(
    limit: int,
) -> None:
    open_now: Counter[str] = Counter()
    most: Counter[str] = Counter()
    together = 0

    async def step(task: Task) -> StepResult:
        nonlocal together
        open_now[task.env] += 1
        most[task.env] = max(most[task.env], open_now[task.env])
        together = max(together, open_now.total())
        await asyncio.sleep(0.002)
        open_now[task.env] -= 1
        return WIN

    factory = stepping(step)
    asked = [
        replace(one, task=replace(one.task, env="slow" if place < 4 else "other"))
        for place, one in enumerate(requests(factory, 6, 4))
    ]
    groups = run(runner(factory, concurrency=8, env_concurrency=limit).run(asked))
    assert len(groups) == 6
    assert most == {"slow": limit, "other": limit}
    assert together == 2 * limit


def test_the_tokens_in_flight_are_limited() -> None:
    # A prompt of "s<" and an answer of up to 4 reserve 6 tokens: two calls fit into 12.
    most = 0

    class Counting(ScriptedEngine):
        async def sample(self, *arguments: object, **keywords: object) -> object:  # type: ignore[override]
            nonlocal most
            most = max(most, self.in_flight + 1)
            return await super().sample(*arguments, **keywords)  # type: ignore[arg-type]

    engine = Counting([(97,)], faults=lambda episode, index: Delay(0.001))
    factory = stepping(lambda task: asyncio.sleep(0, WIN))
    player = agent(engine, sampling=replace(agent().sampling, max_tokens=4))
    playing = runner(factory, player, tokens_in_flight=12)
    groups = run(playing.run(requests(factory, 6, 2)))
    assert most == 2
    waited = [step.timings.wait_s for one in groups for t in one.trajectories for step in t.steps]
    assert sum(one > 0.0005 for one in waited) >= 8
    assert playing.stats.counts().seconds["wait"] == pytest.approx(sum(waited))


def test_no_more_groups_are_under_way_than_the_consumer_lets() -> None:
    async def scenario() -> int:
        begun: set[str] = set()
        most = taken = 0

        async def step(task: Task) -> StepResult:
            nonlocal most
            begun.add(task.id)
            most = max(most, len(begun) - taken)
            return WIN

        factory = stepping(step, 9)
        async with runner(factory).stream(requests(factory, 9, 2), ahead=3) as groups:
            async for _ in groups:
                taken += 1
                for _ in range(20):
                    await asyncio.sleep(0)  # the consumer works, and episodes go on meanwhile
        assert taken == 9
        return most

    assert run(scenario()) == 3


def test_an_endless_source_is_asked_only_when_there_is_room() -> None:
    async def scenario() -> tuple[int, int]:
        factory = corridor()
        tasks = factory.tasks("train")
        asked = 0
        closed = asyncio.Event()

        async def endless() -> AsyncIterator[GroupRequest]:
            nonlocal asked
            try:
                while True:
                    task = tasks[asked % len(tasks)]
                    asked += 1
                    yield GroupRequest(f"g{asked}", task, 2, seed=asked)
            finally:
                closed.set()

        taken = 0
        async with runner(factory, concurrency=4).stream(endless(), ahead=4) as groups:
            async for _ in groups:
                taken += 1
                if taken == 20:
                    break
        assert closed.is_set()
        return asked, taken

    asked, taken = run(scenario())
    assert taken <= asked <= taken + 5


def test_a_source_may_take_its_time_and_what_is_in_flight_goes_on() -> None:
    async def scenario() -> list[str]:
        factory = corridor()
        first_done = asyncio.Event()

        async def source() -> AsyncIterator[GroupRequest]:
            first, second = requests(factory, 2)
            yield first
            await first_done.wait()
            yield second

        order = []
        async with runner(factory).stream(source()) as groups:
            async for group in groups:
                order.append(group.id)
                first_done.set()
        return order

    assert run(scenario()) == ["g0", "g1"]


def test_the_end_of_the_requests_is_an_end_and_a_failure_is_raised() -> None:
    async def broken(kind: type[Exception]) -> AsyncIterator[GroupRequest]:
        yield requests(corridor(), 1)[0]
        raise kind("the source broke")

    async def take(error: type[Exception]) -> list[str]:
        factory = corridor()
        async with runner(factory).stream(broken(error)) as groups:
            return [group.id async for group in groups]

    assert run(runner(corridor()).run([])) == []  # no data: an end, at once
    for error in (ValueError, DataError, EpisodeError):
        with pytest.raises(error, match="the source broke"):
            run(take(error))


def test_a_failure_is_raised_again_to_whoever_asks_again() -> None:
    async def scenario() -> None:
        factory = ScriptedFactory(lambda *_: ScriptedEnv(say("s"), [OSError("gone")]), count=3)
        asked = requests(factory, 3, 1)
        async with runner(factory, retries=0, give_up_after=2).stream(asked) as groups:
            for _ in range(2):
                with pytest.raises(EpisodeError, match=r"2 episodes in a row.*gone"):
                    await anext(groups)

    run(scenario())


def test_whoever_leaves_early_leaves_nothing_open() -> None:
    async def scenario() -> ScriptedFactory:
        async def step(task: Task) -> StepResult:
            if number(task):
                await asyncio.Event().wait()
            return WIN

        factory = stepping(step)
        async with runner(factory).stream(requests(factory, 6, 1)) as groups:
            async for group in groups:
                assert group.id == "g0"
                break
        return factory

    factory = run(scenario())
    assert len(factory.made) == 6
    assert all(env.closes == 1 for env in factory.made)


def test_a_group_of_nobody_is_complete_at_once() -> None:
    factory = corridor()
    groups = run(runner(factory).run(requests(factory, 2, 0)))
    assert [(group.id, group.trajectories) for group in groups] == [("g0", ()), ("g1", ())]


def test_a_group_asked_for_twice_is_refused() -> None:
    factory = corridor()
    (one,) = requests(factory, 1)
    with pytest.raises(DataError, match="group 'g0' is asked for twice"):
        run(runner(factory).run([one, one]))


def test_a_stream_is_taken_from_another_thread_and_goes_on_meanwhile() -> None:
    factory = corridor()
    playing = runner(factory, concurrency=3)
    with LoopThread() as loop, loop.iterate(playing.stream(requests(factory), ahead=2)) as groups:
        assert {group.id for group in groups} == {"g0", "g1", "g2", "g3"}
    assert playing.stats.in_flight == 0


def test_leaving_from_another_thread_closes_what_is_in_flight() -> None:
    async def step(task: Task) -> StepResult:
        if number(task):
            await asyncio.Event().wait()
        return WIN

    def first(groups: Iterator[object]) -> object:
        return next(groups)

    factory = stepping(step)
    with LoopThread() as loop:
        with loop.iterate(runner(factory).stream(requests(factory, 6, 1))) as groups:
            assert first(groups)
        assert all(env.closes == 1 for env in factory.made)


def test_what_is_sampled_does_not_depend_on_any_limit() -> None:
    factory = corridor()
    free = finished(run(runner(factory).run(requests(factory))))
    engine = ScriptedEngine(Improvised())
    tight = runner(factory, agent(engine), concurrency=2, env_concurrency=1, tokens_in_flight=100)
    assert finished(run(tight.run(requests(factory)))) == free
    assert len(engine.calls) == sum(len(one.steps) for one in free.values())  # none for nothing
