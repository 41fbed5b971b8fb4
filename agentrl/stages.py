"""The stages of a run as iterators of batches: the learner pulls, rollouts happen in between."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from agentrl.agents.loop import Agent
from agentrl.config import CloneStage, LearnerConfig, ReinforceStage
from agentrl.core.errors import ConfigError
from agentrl.core.protocols import Annotator, CreditEstimator, Demonstrator, EnvFactory, Learner
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import Batch, CreditResult, Group
from agentrl.learn.rows import batches_from_groups, rows_from_demonstrations
from agentrl.rollout.demonstrations import MaskedTokens, demonstrate
from agentrl.rollout.runner import GroupRequest, Runner
from agentrl.rollout.thread import LoopThread

__all__ = ["Iteration", "TaskCursor", "clone_batches", "reinforce_batches"]


@dataclass(slots=True)
class TaskCursor:
    """Goes through the training tasks in seeded shuffled epochs; every task once an epoch."""

    tasks: Sequence[Task]
    seed: int
    position: int = 0
    _epoch: int = field(default=-1)
    _order: list[int] = field(default_factory=list)

    def take(self, count: int) -> list[tuple[Task, int]]:
        """The next ``count`` tasks, each with the number of its epoch."""
        return [self._next() for _ in range(count)]

    def _next(self) -> tuple[Task, int]:
        epoch, offset = divmod(self.position, len(self.tasks))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, list(range(len(self.tasks)))
            random.Random(derive_seed(self.seed, "epoch", epoch)).shuffle(self._order)
        self.position += 1
        return self.tasks[self._order[offset]], epoch


@dataclass(frozen=True, slots=True)
class Iteration:
    """What one rollout and its updates came to."""

    number: int
    groups: Sequence[Group]
    credit: CreditResult
    rollout_s: float
    update_s: float

    @property
    def success(self) -> float | None:
        """Share of finished episodes that succeeded; ``None`` if none finished."""
        known = [one.success for group in self.groups for one in group.trajectories]
        finished = [float(one) for one in known if one is not None]
        return fmean(finished) if finished else None

    @property
    def reward(self) -> float | None:
        rewards = [one.reward for group in self.groups for one in group.trajectories]
        scored = [one for one in rewards if one is not None]
        return fmean(scored) if scored else None


def reinforce_batches(
    stage: ReinforceStage,
    *,
    runner: Runner,
    loop: LoopThread,
    cursor: TaskCursor,
    credit: CreditEstimator,
    annotators: Sequence[Annotator],
    learner: Learner,
    weighting: LearnerConfig,
    seed: int,
    name: str,
    on_groups: Callable[[Sequence[Group], CreditResult], None],
    on_iteration: Callable[[Iteration], bool],
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Batch]:
    """Roll out, assign credit, yield the updates' batches, publish, repeat.

    ``on_iteration`` returns True to stop. A batch without any signal is not yielded: there is
    nothing to learn from it.
    """
    started = clock()
    for number in range(stage.iterations):
        begun = clock()
        requests = [
            GroupRequest(
                id=f"{name}-{number}-{place}-{task.id}",
                task=task,
                size=stage.group_size,
                seed=seed,
                first_trial=epoch * stage.group_size,
            )
            for place, (task, epoch) in enumerate(cursor.take(stage.tasks_per_iteration))
        ]
        groups: Sequence[Group] = loop.run(runner.run(requests))
        for annotator in annotators:
            groups = annotator.annotate(groups)
        assigned = credit.assign(groups)
        on_groups(groups, assigned)
        rolled_out = clock()
        batches = batches_from_groups(
            groups,
            assigned,
            updates=stage.updates_per_iteration,
            trajectory_weighting=weighting.trajectory_weighting,
            batch_id=f"{name}-{number}",
        )
        for batch in batches:
            if any(any(row.advantages) for row in batch.rows):
                yield batch
        learner.publish()
        done = Iteration(number, groups, assigned, rolled_out - begun, clock() - rolled_out)
        if on_iteration(done):
            return
        if stage.max_seconds is not None and clock() - started >= stage.max_seconds:
            return


def clone_batches(
    stage: CloneStage,
    *,
    factory: EnvFactory,
    agent: Agent,
    loop: LoopThread,
    tasks: Sequence[Task],
    seed: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Batch]:
    """Batches of the expert's episodes, drawn in seeded shuffled epochs.

    Raises:
        ConfigError: the environment has no expert.
    """
    if not isinstance(factory, Demonstrator):
        raise ConfigError(
            f"a clone stage needs an expert, and {type(factory).__name__} has none: give it a "
            "method demonstrate(task, *, seed, noise), or start from a model and remove the stage"
        )
    started = clock()
    cursor = TaskCursor(tasks, derive_seed(seed, "clone"))
    cache: dict[str, list[MaskedTokens]] = {}
    for update in range(stage.updates):
        rows: list[MaskedTokens] = []
        for task, _ in cursor.take(stage.episodes_per_update):
            if task.id not in cache:
                work = demonstrate(
                    factory,
                    agent,
                    task,
                    seed=seed,
                    noise=stage.noise,
                    imitate_noise=stage.imitate_noise,
                )
                cache[task.id] = loop.run(work)
            rows.extend(cache[task.id])
        yield Batch(rows_from_demonstrations(rows), id=f"clone-{update}")
        if stage.max_seconds is not None and clock() - started >= stage.max_seconds:
            return
