"""What the runner itself costs: time per environment step, memory of many episodes in flight.

    python benchmarks/runner_overhead.py [--json] [--episodes N] [--steps N]

The shipped runner plays scripted episodes: engine and environment answer at once, so that what is
measured is the loop, its deadlines, the limits and the records. For the memory, every episode is
held in flight at its last step, with the history it has gathered, until the last one has arrived.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.agents.loop import Agent, Budgets
from agentrl.core.message import Message, ToolSpec
from agentrl.core.task import Task, content_hash
from agentrl.core.trajectory import Observation, Sampling, StepResult
from agentrl.engines.scripted import ScriptedEngine
from agentrl.memory.transcript import Transcript
from agentrl.rollout.runner import GroupRequest, Limits, Runner
from agentrl.testing.characters import CharacterRenderer

TARGET_MS, TARGET_MB = 1.0, 1000.0
GROUP_SIZE = 8


@dataclass(slots=True)
class Gate:
    """Holds episodes at their last step until ``wanted`` of them are there."""

    wanted: int
    arrived: int = 0
    most_mb: float = 0.0
    open: asyncio.Event | None = None

    async def wait(self) -> None:
        self.open = self.open or asyncio.Event()
        self.arrived += 1
        if self.arrived >= self.wanted:
            self.most_mb = max(self.most_mb, resident_mb())
            self.open.set()
        await self.open.wait()


@dataclass(slots=True)
class CountingEnv:
    """Shows a line of text at each of ``steps`` steps, then is solved."""

    steps: int
    gate: Gate | None
    taken: int = 0

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return ()

    async def reset(self) -> Observation:
        return self._show()

    async def step(self, action: Message) -> StepResult:
        self.taken += 1
        over = self.taken == self.steps
        if over and self.gate is not None:
            await self.gate.wait()
        return StepResult(self._show(), float(over), terminated=over, success=over or None)

    async def aclose(self) -> None:
        """Nothing is open."""

    def _show(self) -> Observation:
        return Observation((Message("user", f"step {self.taken}: the lamp is off"),), self.taken)


@dataclass(frozen=True, slots=True)
class CountingFactory:
    """``count`` tasks of the environment above."""

    count: int
    steps: int
    gate: Gate | None = None
    splits: Sequence[str] = ("train",)

    def tasks(self, split: str) -> Sequence[Task]:
        payloads = ({"number": number} for number in range(self.count))
        return [Task(content_hash(one), "counting", split, one) for one in payloads]

    async def make(self, task: Task, *, seed: int) -> CountingEnv:
        return CountingEnv(self.steps, self.gate)


def resident_mb() -> float:
    """Most memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def play(episodes: int, steps: int, gate: Gate | None, **limits: Any) -> float:
    """CPU seconds of playing ``episodes`` episodes at once."""
    agent = Agent(
        engine=ScriptedEngine(lambda prompt, index: (97, 98, 99)),
        renderer=CharacterRenderer(),
        make_memory=Transcript,
        sampling=Sampling(max_tokens=8),
        action_format="bare",
        budgets=Budgets(max_steps=steps + 1),
    )
    factory = CountingFactory(episodes // GROUP_SIZE, steps, gate)
    runner = Runner(factory, agent, Limits(concurrency=episodes, **limits))
    requests = [
        GroupRequest(f"g{place}", task, GROUP_SIZE, seed=0)
        for place, task in enumerate(factory.tasks("train"))
    ]
    started = time.process_time()
    groups = asyncio.run(runner.run(requests))
    seconds = time.process_time() - started
    played = [one for group in groups for one in group.trajectories]
    assert len(played) == episodes
    assert all(one.success and len(one.steps) == steps for one in played)
    return seconds


def measure(episodes: int, steps: int) -> dict[str, Any]:
    """Overhead per step with and without the limit on tokens, memory, and whether they do."""
    before = resident_mb()
    gate = Gate(episodes)
    play(episodes, steps, gate)
    # Few episodes of some length, so that a step's cost is not that of making episodes.
    per_step = play(200, 50, None) / (200 * 50)
    limited = play(200, 50, None, tokens_in_flight=20_000) / (200 * 50)
    found = {
        "episodes_in_flight": gate.arrived,
        "resident_mb": round(gate.most_mb, 1),
        "before_mb": round(before, 1),
        "ms_per_step": round(1000 * per_step, 4),
        "ms_per_step_limited": round(1000 * limited, 4),
    }
    ok = max(per_step, limited) * 1000 < TARGET_MS and gate.most_mb < TARGET_MB
    return found | {"ok": ok}


def main() -> int:
    """Print the figures, or one line of JSON last; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="one line of JSON last")
    arguments = parser.parse_args()
    found = measure(arguments.episodes, arguments.steps)
    for name, value in found.items():
        print(f"{name:22}{value:>12}")
    if arguments.json:
        print(json.dumps(found))
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
