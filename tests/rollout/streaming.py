"""A process that plays into a store, to be killed: ``python streaming.py DIRECTORY TAKES``.

It takes so many groups, says the id of each, then waits while the others go on being played.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from agentrl.agents.flight import Deadlines
from agentrl.core.trajectory import Trajectory
from agentrl.rollout.runner import GroupRequest, Limits, Runner
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.faults import Fault, FaultyFactory
from tests.rollout.playing import agent, corridor, requests

GROUPS, SIZE = 6, 3


def played_into(store: SqliteStore, slow_from: int = GROUPS) -> tuple[Runner, list[GroupRequest]]:
    """A runner that records in ``store``; tasks from ``slow_from`` on never end their reset."""
    factory = corridor()
    asked = requests(factory, GROUPS, SIZE)
    slow = {one.task.id for one in asked[slow_from:]}

    def keep(request: GroupRequest, trajectory: Trajectory) -> None:
        store.append(trajectory, task=request.task, iteration=1, purpose="train")

    runner = Runner(
        FaultyFactory(factory, Fault("hang", "reset", chooses=lambda task, seed: task.id in slow)),
        agent(deadlines=Deadlines()),
        Limits(),
        keep,
        lambda request: store.played(request.id),
    )
    return runner, asked


async def play(directory: Path, takes: int) -> None:
    with SqliteStore(directory) as store:
        runner, asked = played_into(store, 4)
        async with runner.stream(asked) as groups:
            for _ in range(takes):
                print((await anext(groups)).id, flush=True)
            while store.count() < 4 * SIZE:  # noqa: ASYNC110 - a store has no event
                await asyncio.sleep(0.001)
            print("waiting", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(play(Path(sys.argv[1]), int(sys.argv[2])))
