"""What worker processes cost a step, and what they save where environments block.

    python benchmarks/env_processes.py [--json] [--steps N] [--episodes N] [--processes N]
                                       [--blocked-ms MS]

Two measurements, each in process and in worker processes in the same run:

- *overhead*: the toy environment, whose step takes microseconds, one episode at a time. What a step
  costs more in a worker is the way there and back.
- *blocking*: an environment that sleeps in each step and holds its thread meanwhile, as one that
  computes does. The lag is how late a timer of the event loop fires; in process it grows with the
  episodes, for all of them are blocked one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.core.message import Message
from agentrl.core.protocols import EnvFactory
from agentrl.core.task import Task
from agentrl.core.trajectory import Observation, StepResult
from agentrl.envs.process.factory import Workers, in_processes
from agentrl.envs.toy import ToyFactory

LOOK = Message("assistant", "look")
STEPS = 8
TICK_S = 0.005


class BlockingEnv:
    """Blocks its thread in every step; over after ``STEPS``."""

    tools = ()

    def __init__(self, blocked_s: float) -> None:
        self._blocked_s = blocked_s
        self._steps = 0

    async def reset(self) -> Observation:
        return Observation((Message("user", "begin"),))

    async def step(self, action: Message) -> StepResult:
        time.sleep(self._blocked_s)  # noqa: ASYNC251 - blocking is what is measured
        self._steps += 1
        over = self._steps == STEPS
        return StepResult(Observation((Message("user", "on"),)), 0.0, over, success=over)

    async def aclose(self) -> None:
        """Nothing is open."""


class BlockingFactory:
    """One task, played by ``BlockingEnv``."""

    splits = ("train",)

    def __init__(self, *, blocked_s: float) -> None:
        self._blocked_s = blocked_s

    def tasks(self, split: str) -> Sequence[Task]:
        return (Task("blocking", "blocking", split),)

    async def make(self, task: Task, *, seed: int) -> BlockingEnv:
        return BlockingEnv(self._blocked_s)


async def step_times(factory: EnvFactory, steps: int) -> list[float]:
    """Seconds of each of so many steps, one after the other."""
    taken: list[float] = []
    task = factory.tasks("train")[0]
    while len(taken) < steps:
        env = await factory.make(task, seed=0)
        await env.reset()
        over = False
        while not over and len(taken) < steps:
            started = time.perf_counter()
            result = await env.step(LOOK)
            taken.append(time.perf_counter() - started)
            over = result.terminated or result.truncated
        await env.aclose()
    return taken


async def played(factory: EnvFactory, episodes: int) -> dict[str, float]:
    """Play all at once; episodes a second, and how late a timer was meanwhile."""
    late: list[float] = []

    async def tick() -> None:
        while True:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            late.append(time.perf_counter() - due)

    async def episode(number: int) -> None:
        env = await factory.make(task, seed=number)
        await env.reset()
        while not (await env.step(LOOK)).terminated:
            pass
        await env.aclose()

    task = factory.tasks("train")[0]
    await asyncio.gather(*(episode(number) for number in range(episodes // 8)))  # starts processes
    ticking = asyncio.create_task(tick())
    await asyncio.sleep(2 * TICK_S)
    started = time.perf_counter()
    await asyncio.gather(*(episode(number) for number in range(episodes)))
    seconds = time.perf_counter() - started
    await asyncio.sleep(2 * TICK_S)
    ticking.cancel()
    return {
        "episodes_per_s": episodes / seconds,
        "lag_median_ms": 1e3 * statistics.median(late),
        "lag_max_ms": 1e3 * max(late),
    }


async def overhead(steps: int) -> dict[str, float]:
    """Milliseconds of a step, in process and in a worker."""
    factory = in_processes("toy")
    try:
        await step_times(factory, 200)
        taken = await step_times(factory, steps)
    finally:
        await factory.aclose()
    own = await step_times(ToyFactory(), steps)
    in_worker, in_process = statistics.median(taken), statistics.median(own)
    return {
        "in_process_ms": 1e3 * in_process,
        "in_worker_ms": 1e3 * in_worker,
        "overhead_ms": 1e3 * (in_worker - in_process),
        "overhead_p99_ms": 1e3 * (statistics.quantiles(taken, n=100)[98] - in_process),
    }


async def blocking(blocked_s: float, episodes: int, processes: int) -> dict[str, Any]:
    """Blocking episodes in process and in workers, and the ratios."""
    workers = Workers(processes=processes, episodes=episodes)
    factory = in_processes("env_processes:BlockingFactory", {"blocked_s": blocked_s}, workers)
    try:
        apart = await played(factory, episodes)
    finally:
        await factory.aclose()
    together = await played(BlockingFactory(blocked_s=blocked_s), episodes)
    return {
        "in_process": together,
        "in_workers": apart,
        "speed_up": apart["episodes_per_s"] / together["episodes_per_s"],
        "lag_ratio": together["lag_max_ms"] / apart["lag_max_ms"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--json", action="store_true", help="last line: everything as JSON")
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--blocked-ms", type=float, default=5.0)
    arguments = parser.parse_args()
    os.chdir(Path(__file__).parent)
    step = asyncio.run(overhead(arguments.steps))
    blocked = asyncio.run(
        blocking(arguments.blocked_ms / 1e3, arguments.episodes, arguments.processes)
    )
    found = {"cores": os.cpu_count(), "step": step, "blocking": blocked}
    if arguments.json:
        print(json.dumps(found))
        return
    print(
        f"a step: {step['in_process_ms']:.3f} ms in process, {step['in_worker_ms']:.3f} ms in a "
        f"worker: {step['overhead_ms']:.3f} ms more (99 %: {step['overhead_p99_ms']:.3f} ms)"
    )
    for name in ("in_process", "in_workers"):
        one = blocked[name]
        print(
            f"blocking, {name.replace('_', ' '):10}: {one['episodes_per_s']:7.1f} episodes/s, "
            f"timers late by {one['lag_median_ms']:.1f} ms (median), {one['lag_max_ms']:.1f} ms "
            "(most)"
        )
    print(f"speed-up {blocked['speed_up']:.2f}, lag {blocked['lag_ratio']:.0f} times less")


if __name__ == "__main__":
    main()
