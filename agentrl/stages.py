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
from agentrl.credit.diagnostics import with_diagnostics
from agentrl.learn.proximal import with_proximal_logprobs
from agentrl.learn.rows import batches_from_groups, rows_from_demonstrations
from agentrl.rollout.demonstrations import MaskedTokens, demonstrate
from agentrl.rollout.load import Load, Meter
from agentrl.rollout.runner import GroupRequest, Runner, refuse_if_nothing_finished
from agentrl.rollout.thread import LoopThread

__all__ = ["Iteration", "TaskCursor", "clone_batches", "reinforce_batches"]


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
    """What one rollout and its updates came to, the last of them published as a version.

    Groups below the quorum are not among ``groups``; ``load`` says what this process played,
    and how busy the engine was.
    """

    number: int
    groups: Sequence[Group]
    credit: CreditResult
    policy_version: int
    rollout_s: float
    update_s: float
    load: Load | None = None

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
    tasks: Sequence[Task],
    credit: CreditEstimator,
    annotators: Sequence[Annotator],
    learner: Learner,
    settings: LearnerConfig,
    seed: int,
    name: str,
    on_groups: Callable[[Sequence[Group], CreditResult], None],
    on_iteration: Callable[[Iteration], bool],
    done: int = 0,
    spent_s: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Batch]:
    """Roll out, assign credit, yield the updates' batches, publish, repeat.

    A batch without any signal is yielded too: whether there is something to learn from it is for
    the learner to know, and it counts in the schedule of the learning rate.

    Args:
        stage: How many iterations of how many groups.
        runner: Plays them. loop: where it does so.
        tasks: The training tasks, gone through in seeded shuffled epochs.
        credit: Gives advantages to the groups, after all ``annotators``.
        annotators: Add to the groups what credit needs.
        learner: Is told to publish after each iteration.
        settings: The learner's: how trajectories are weighted, which loss wants what of its rows.
        seed: Seeds of episodes and the order of tasks derive from it.
        name: Group ids begin with it.
        on_groups: Called with every rollout before anything is learnt from it.
        on_iteration: Called after the last update of each; True stops the stage.
        done: Iterations that a run before a kill has finished. The rest is as if it had gone on.
        spent_s: Seconds of the stage that it had taken.
        clock: Seconds.
    """
    started = clock() - spent_s
    cursor = TaskCursor(tasks, seed, position=done * stage.tasks_per_iteration)
    for number in range(done, stage.iterations):
        if number and _over(stage.max_seconds, clock() - started):
            return
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
        meter = Meter(runner.stats, runner.agent.engine, runner.clock)
        before = meter.mark()
        groups: Sequence[Group] = loop.run(runner.run(requests), on_given_up=runner.blame)
        refuse_if_nothing_finished(groups)
        load = meter.since(before)
        for annotator in annotators if groups else ():
            groups = annotator.annotate(groups)
        assigned = credit.assign(groups) if groups else CreditResult(())
        assigned = with_diagnostics(groups, assigned)
        on_groups(groups, assigned)
        rolled_out = clock()
        batches = batches_from_groups(
            groups,
            assigned,
            updates=stage.updates_per_iteration,
            trajectory_weighting=settings.trajectory_weighting,
            batch_id=f"{name}-{number}",
        )
        if settings.loss == "decoupled":
            batches = with_proximal_logprobs(batches, learner)
        yield from batches
        version = learner.publish()
        seconds = (rolled_out - begun, clock() - rolled_out)
        if on_iteration(Iteration(number, groups, assigned, version, *seconds, load)):
            return


def clone_batches(
    stage: CloneStage,
    *,
    factory: EnvFactory,
    agent: Agent,
    loop: LoopThread,
    tasks: Sequence[Task],
    settings: LearnerConfig,
    seed: int,
    done: int = 0,
    spent_s: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Batch]:
    """Batches of the expert's episodes, drawn in seeded shuffled epochs.

    Arguments as for ``reinforce_batches``; ``done`` counts updates.

    Raises:
        ConfigError: the environment has no expert.
    """
    if not isinstance(factory, Demonstrator):
        raise ConfigError(
            f"a clone stage needs an expert, and {type(factory).__name__} has none: give it a "
            "method demonstrate(task, *, seed, noise), or start from a model and remove the stage"
        )
    started = clock() - spent_s
    cursor = TaskCursor(
        tasks, derive_seed(seed, "clone"), position=done * stage.episodes_per_update
    )
    cache: dict[str, list[MaskedTokens]] = {}
    for update in range(done, stage.updates):
        if update and _over(stage.max_seconds, clock() - started):
            return
        episodes: list[list[MaskedTokens]] = []
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
            episodes.append(cache[task.id])
        rows = rows_from_demonstrations(
            episodes, trajectory_weighting=settings.trajectory_weighting
        )
        yield Batch(rows, id=f"clone-{update}")


def _over(max_seconds: float | None, seconds: float) -> bool:
    return max_seconds is not None and seconds >= max_seconds
