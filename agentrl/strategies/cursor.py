"""The order in which training tasks are played."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agentrl.core.errors import ConfigError
from agentrl.core.task import Task, derive_seed

__all__ = ["TaskCursor", "draw_task"]

_TRIES = 64


@dataclass(slots=True)
class TaskCursor:
    """Goes through the training tasks in seeded shuffled epochs; every task once an epoch.

    A task that was set aside (``rollout.poison``) keeps its place, and is not played when it comes:
    so the tasks of an iteration never depend on what has failed before.
    """

    tasks: Sequence[Task]
    seed: int
    position: int = 0
    _epoch: int = field(default=-1)
    _order: list[int] = field(default_factory=list)

    def take(
        self, count: int, admits: Callable[[Task], bool] | None = None
    ) -> list[tuple[Task, int]]:
        """The next ``count`` tasks that are admitted, each with the number of its epoch.

        The others are passed over: they come again in the next epoch.

        Raises:
            ConfigError: a whole epoch holds no task that is admitted.
        """
        found: list[tuple[Task, int]] = []
        passed = 0
        while len(found) < count:
            task, epoch = self._next()
            if admits is None or admits(task):
                found.append((task, epoch))
                passed = 0
            else:
                passed += 1
                if passed == len(self.tasks):
                    raise _nothing_admitted(passed)
        return found

    def _next(self) -> tuple[Task, int]:
        epoch, offset = divmod(self.position, len(self.tasks))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, list(range(len(self.tasks)))
            random.Random(derive_seed(self.seed, "epoch", epoch)).shuffle(self._order)
        self.position += 1
        return self.tasks[self._order[offset]], epoch


def draw_task(
    tasks: Sequence[Task], *, seed: int, admits: Callable[[Task], bool] | None = None
) -> Task:
    """One of the tasks that are admitted, drawn from ``seed`` alone.

    Raises:
        ConfigError: none is admitted.
    """
    rng = random.Random(seed)
    for _ in range(_TRIES):
        task = tasks[rng.randrange(len(tasks))]
        if admits is None or admits(task):
            return task
    assert admits is not None
    admitted = [task for task in tasks if admits(task)]
    if not admitted:
        raise _nothing_admitted(len(tasks))
    return rng.choice(admitted)


def _nothing_admitted(count: int) -> ConfigError:
    return ConfigError(
        f"the stage's strategies admit none of its {count:,} training tasks: choose their options "
        "so that some are left (for 'difficulty': levels that the tasks have)"
    )
