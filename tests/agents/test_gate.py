"""The limit on tokens in flight: never exceeded, first come first served, nothing is leaked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.agents.gate import TokenGate


@given(
    st.lists(st.integers(1, 12), max_size=20),
    st.integers(0, 10),
    st.sets(st.integers(0, 19), max_size=6),
)
def test_it_is_never_exceeded_and_let_in_in_order(
    calls: Sequence[int], limit: int, cancelled: set[int]
) -> None:
    # A call larger than the limit runs alone; cancelling any call at any moment leaks nothing.
    async def scenario() -> None:
        gate, order = TokenGate(limit), []

        async def call(number: int, tokens: int) -> None:
            async with gate.room(tokens):
                order.append(number)
                if limit:
                    assert gate.in_use <= max(limit, tokens)
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(call(*one)) for one in enumerate(calls)]
        await asyncio.sleep(0)
        for number in cancelled & set(range(len(calls))):
            tasks[number].cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == sorted(order)
        assert (gate.in_use, gate.waiting) == (0, 0)
        assert set(order) >= set(range(len(calls))) - cancelled

    asyncio.run(scenario())


def test_a_large_call_is_not_starved_by_small_ones() -> None:
    async def scenario() -> list[str]:
        gate, order = TokenGate(10), []

        async def call(name: str, tokens: int) -> None:
            async with gate.room(tokens):
                order.append(name)
                await asyncio.sleep(0.001)

        names = [("first", 6), ("large", 10), *((f"small {number}", 1) for number in range(5))]
        await asyncio.gather(*(call(*one) for one in names))
        return order

    assert asyncio.run(scenario())[:2] == ["first", "large"]


@pytest.mark.parametrize("turns", range(4))
def test_a_call_cancelled_the_moment_it_is_let_in_gives_its_room_back(turns: int) -> None:
    async def scenario() -> TokenGate:
        gate, leave = TokenGate(4), asyncio.Event()

        async def call() -> None:
            async with gate.room(4):
                await leave.wait()

        first, second = asyncio.create_task(call()), asyncio.create_task(call())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        leave.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        return gate

    gate = asyncio.run(scenario())
    assert (gate.in_use, gate.waiting) == (0, 0)
