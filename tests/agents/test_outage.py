"""An engine that is down is told from calls that fail; one at a time tries it, the others wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from agentrl.agents.outage import LONGEST_PAUSE_S, Call, Outages
from agentrl.testing.simulated_time import run_simulated


def down(pause_s: float = 0.0) -> Outages:
    """An outage, just recognised."""
    outages = Outages(pause_s)
    assert outages.failed(Call(0), "a") == ""
    assert outages.failed(Call(0), "b") == "hit"
    assert outages.down
    return outages


def test_the_same_episode_that_fails_again_and_again_is_no_outage() -> None:
    outages = Outages()
    assert [outages.failed(Call(0), "a") for _ in range(9)] == [""] * 9
    assert not outages.down


def test_an_answer_between_two_failures_shows_that_the_engine_is_up() -> None:
    outages = Outages()
    for who in "abababab":
        assert outages.failed(Call(0), who) == ""
        outages.answered(Call(0))
    assert outages.count == 0


def test_what_began_before_an_outage_ended_was_hit_by_it() -> None:
    async def scenario() -> None:
        outages = down()
        outages.answered(Call(0))
        assert not outages.down
        assert outages.failed(Call(0), "c") == "hit"
        assert not outages.down
        assert outages.failed(await outages.admit(), "c") == ""

    run_simulated(scenario())


def test_one_call_at_a_time_tries_with_growing_pauses_and_an_answer_lets_all_in() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        outages = down(0.5)
        tried: list[float] = []
        waiting = [asyncio.create_task(outages.admit()) for _ in range(12)]
        for number in range(10):
            assert outages.pausing
            call = await waiting[number]  # in the order in which they came
            assert call.probe
            assert not outages.pausing
            assert not waiting[number + 1].done()
            tried.append(loop.time())
            assert outages.failed(call, number) == "probe"
        pauses = [later - before for before, later in zip([0.0, *tried], tried, strict=False)]
        assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, *[LONGEST_PAUSE_S] * 4]
        outages.answered(await waiting[10])
        assert not (await waiting[11]).probe
        assert (outages.down, outages.waiting, outages.count) == (False, 0, 1)
        assert not (await outages.admit()).probe

    run_simulated(scenario())


def test_where_nobody_waits_the_next_that_comes_tries() -> None:
    async def scenario() -> None:
        outages = down()
        await asyncio.sleep(1.0)
        assert (await outages.admit()).probe
        other = asyncio.create_task(outages.admit())
        await asyncio.sleep(1.0)
        assert not other.done()
        other.cancel()

    run_simulated(scenario())


@given(st.lists(st.sampled_from(["answer", "fail", "withdraw", "cancel"]), max_size=30))
def test_whoever_is_cancelled_or_gives_up_nobody_waits_for_ever(ends: Sequence[str]) -> None:
    async def scenario() -> None:
        outages, left = down(0.1), list(ends)

        async def call(number: int) -> None:
            admitted = await outages.admit()
            end = left.pop() if left else "answer"
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                end = "withdraw"
            if end == "answer":
                outages.answered(admitted)
            elif end == "fail":
                outages.failed(admitted, number)
            else:
                outages.withdrawn(admitted)

        tasks = [asyncio.create_task(call(number)) for number in range(len(ends) + 1)]
        for number, end in enumerate(ends):
            if end == "cancel":
                await asyncio.sleep(0.05)
                tasks[number].cancel()
        ended = asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(10_000):
            await ended
        assert outages.waiting == 0

    run_simulated(scenario())


def test_a_probe_that_is_let_in_and_cancelled_at_one_moment_passes_its_turn_on() -> None:
    async def scenario() -> None:
        outages = down()
        first, second = (asyncio.create_task(outages.admit()) for _ in range(2))
        await asyncio.sleep(0)
        outages._try()
        first.cancel()
        assert (await second).probe

    run_simulated(scenario())
