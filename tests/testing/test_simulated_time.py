"""The event loop whose time jumps, and the benchmark of scheduling that stands on it."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from agentrl.testing.simulated_time import run_simulated

SCHEDULER = Path(__file__).resolve().parents[2] / "benchmarks" / "scheduler.py"


def test_hours_pass_at_once_and_in_order() -> None:
    async def work() -> tuple[list[int], float]:
        seen: list[int] = []

        async def wait(hours: int) -> None:
            await asyncio.sleep(3600.0 * hours)
            seen.append(hours)

        await asyncio.gather(wait(3), wait(1), wait(2))
        return seen, asyncio.get_running_loop().time()

    seen, seconds = run_simulated(work())
    assert seen == [1, 2, 3]
    assert seconds == pytest.approx(3 * 3600.0)


def test_a_deadline_fires_before_what_is_longer() -> None:
    async def work() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await asyncio.sleep(6.0)
        return asyncio.get_running_loop().time()

    assert run_simulated(work()) == pytest.approx(5.0)


def test_waiting_for_nothing_is_said_and_not_waited_for() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="everything waits and no timer is set"):
        run_simulated(work())


@pytest.fixture(scope="module")
def scheduler() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_scheduler", SCHEDULER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("latency", ["constant", "uniform", "pareto"])
def test_the_runner_is_as_fast_as_the_simulation_of_slots(
    scheduler: ModuleType, latency: str
) -> None:
    # Groups of one are freed one by one: that is what the runner does, and both meet the same
    # latencies, so the competitors are measured with the same yardstick.
    drawn = getattr(scheduler, latency)
    asked = scheduler.requests(512)
    groups = scheduler.turns_of(asked, drawn)
    slots = scheduler.atomic([[turns] for group in groups for turns in group])
    assert scheduler.shipped(asked, drawn) == pytest.approx(slots, rel=0.02)


def test_competitors_by_hand(scheduler: ModuleType) -> None:
    # 64 in flight, 16 places: with one-second calls a turn of a full batch samples for 4 s and
    # steps for 1 s. A batch of one long (2 turns) and 63 short (1 turn) episodes, twice.
    long, short = ((1.0, 1.0),) * 2, ((1.0, 1.0),)
    episodes = [long, *[short] * 63] * 2
    assert scheduler.in_turns(episodes, refill=False) == 2 * (5.0 + 2.0)
    # Refilled: 64, then 1 + 63 (as full), then the second long one's last turn.
    assert scheduler.in_turns(episodes, refill=True) == 5.0 + 5.0 + 2.0
