"""What tests of the runner play: a toy corridor with a scripted policy; how records compare."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from agentrl.agents.flight import Deadlines
from agentrl.agents.loop import Agent
from agentrl.core.protocols import EnvFactory
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import Group, Sampling, StepResult, Timings, Trajectory
from agentrl.engines.scripted import ScriptedEngine
from agentrl.envs.toy import ToyFactory
from agentrl.memory.transcript import Transcript
from agentrl.rollout.runner import GroupRequest, Limits, Runner
from agentrl.testing.characters import CharacterRenderer
from agentrl.testing.scripts import ScriptedEnv, say
from agentrl.testing.simulated_time import run_simulated

T = TypeVar("T")
WIN = StepResult(say(), 1.0, terminated=True, success=True)
COMMANDS = ("go left", "go right", "take key", "open door")
QUICK = Deadlines(make_s=0.2, reset_s=0.2, step_s=0.2, close_s=0.2, sample_s=0.2, cancel_s=0.05)


def win(_task: Task, _attempt: int) -> ScriptedEnv:
    return ScriptedEnv(say("s"), [WIN])


class Improvised(Mapping[str, list[list[int]]]):
    """A script for any episode: commands drawn from a stream of its own, whatever the attempt."""

    def __getitem__(self, episode_id: str) -> list[list[int]]:
        rng = random.Random(derive_seed(0, episode_id.rpartition("/")[0]))
        return [[ord(one) for one in rng.choice(COMMANDS)] for _ in range(6)]

    def __contains__(self, episode_id: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def corridor() -> ToyFactory:
    return ToyFactory(max_rooms=3, max_steps=6)


def agent(engine: ScriptedEngine | None = None, **changes: Any) -> Agent:
    plain = Agent(
        engine=engine or ScriptedEngine(Improvised()),
        renderer=CharacterRenderer(),
        make_memory=Transcript,
        sampling=Sampling(max_tokens=16),
        action_format="bare",
        deadlines=QUICK,
    )
    return replace(plain, **changes)


def runner(factory: EnvFactory, player: Agent | None = None, **limits: Any) -> Runner:
    return Runner(factory, player or agent(), Limits(**limits))


def requests(factory: EnvFactory, count: int = 4, size: int = 3) -> list[GroupRequest]:
    tasks = factory.tasks("train")[:count]
    return [GroupRequest(f"g{place}", task, size, seed=5) for place, task in enumerate(tasks)]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run in simulated time: no deadline passes because the machine was busy."""
    return run_simulated(work)


def run_in_real_time(work: Coroutine[Any, Any, T], seconds: float = 60.0) -> T:
    """Run with a generous deadline: for what waits for threads, processes or the real clock."""

    async def main() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(main())


def bare(trajectory: Trajectory) -> Trajectory:
    """Without what differs between two runs: times, and how many attempts it took."""
    steps = tuple(replace(step, timings=Timings()) for step in trajectory.steps)
    return replace(trajectory, id="", attempt=0, steps=steps, wall_s=0.0)


def finished(groups: Sequence[Group]) -> dict[tuple[str, int], Trajectory]:
    """Finished trajectories by group and trial, bare."""
    played = [one for group in groups for one in group.trajectories]
    return {(one.group_id, one.trial): bare(one) for one in played if one.failure is None}


@dataclass
class Ledger:
    """Remembers every record in order, as a store does, and refuses one that it has."""

    records: list[Trajectory]

    def __call__(self, _request: GroupRequest, trajectory: Trajectory) -> None:
        assert trajectory.id not in {one.id for one in self.records}
        self.records.append(trajectory)

    def last(self) -> dict[tuple[str, int], Trajectory]:
        """By group and trial, the last attempt."""
        return {(one.group_id, one.trial): one for one in self.records}

    def recorded(self, request: GroupRequest) -> dict[int, Trajectory]:
        return {trial: one for (group, trial), one in self.last().items() if group == request.id}
