"""Environments to audit: one fails now and then, others share their tasks out badly."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from agentrl.core.errors import EnvError
from agentrl.core.task import Task
from agentrl.envs.toy import CorridorEnv, ToyFactory


class Flaky(ToyFactory):
    """Corridors, some of which cannot be made at the first attempt, and a few not at all."""

    def __init__(self, *, max_rooms: int = 3, max_steps: int = 6) -> None:
        super().__init__(max_rooms=max_rooms, max_steps=max_steps)
        self._made: Counter[tuple[str, int]] = Counter()

    async def make(self, task: Task, *, seed: int) -> CorridorEnv:
        self._made[task.id, seed] += 1
        if seed % 17 == 0 or (seed % 3 == 0 and self._made[task.id, seed] == 1):
            raise EnvError("the corridor is being cleaned")
        return await super().make(task, seed=seed)


class Leaky(ToyFactory):
    """Tests on corridors that it trains on, under ids that are places in a list."""

    def tasks(self, split: str) -> Sequence[Task]:
        if split != "test":
            return super().tasks(split)
        train = super().tasks("train")[:4]
        return [replace(task, id=f"test-{place}", split=split) for place, task in enumerate(train)]


class Doubled(ToyFactory):
    """Lists the first test task twice."""

    def tasks(self, split: str) -> Sequence[Task]:
        tasks = list(super().tasks(split))
        return [tasks[0], *tasks] if split == "test" else tasks


class Unsorted(ToyFactory):
    """Lists its test tasks as they come to hand: in another order in each process."""

    def tasks(self, split: str) -> Sequence[Task]:
        tasks = list(super().tasks(split))
        if split == "test":
            random.Random(os.getpid()).shuffle(tasks)
        return tasks


class Shuffled(ToyFactory):
    """Cuts a shuffle of its own in each process: an index split (E6)."""

    def tasks(self, split: str) -> Sequence[Task]:
        every = [task for name in self.splits for task in super(Shuffled, self).tasks(name)]
        random.Random(os.getpid()).shuffle(every)
        bounds = {"test": (0, 4), "validation": (4, 7), "train": (7, len(every))}
        start, end = bounds[split]
        return [replace(task, split=split) for task in every[start:end]]


class Nameless(ToyFactory):
    """Keeps nothing in its payloads."""

    def tasks(self, split: str) -> Sequence[Task]:
        return [replace(task, payload={}) for task in super().tasks(split)]


class Unmade(ToyFactory):
    """Its data is not on this machine."""

    def __init__(self) -> None:
        raise EnvError("the games are on another machine")
