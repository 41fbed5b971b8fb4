"""The stages of a run as iterators of batches: the learner pulls, rollouts happen in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from agentrl.agents.loop import Agent
from agentrl.config import CloneStage, LearnerConfig, ReinforceStage
from agentrl.core.errors import ConfigError, DataError
from agentrl.core.protocols import Annotator, CreditEstimator, Demonstrator, EnvFactory, Learner
from agentrl.core.strategy import Recall
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import Batch, CreditResult, Group, Trajectory
from agentrl.credit.diagnostics import with_diagnostics
from agentrl.learn.proximal import with_proximal_logprobs
from agentrl.learn.rows import batches_from_groups, rows_from_demonstrations
from agentrl.registry import make
from agentrl.rollout.demonstrations import MaskedTokens, demonstrate
from agentrl.rollout.load import Load, Meter
from agentrl.rollout.rounds import play_rounds
from agentrl.rollout.runner import Runner
from agentrl.rollout.staleness import Asynchrony
from agentrl.rollout.thread import LoopThread
from agentrl.strategies.course import Course, Learnt, Rollout
from agentrl.strategies.cursor import TaskCursor

__all__ = ["Iteration", "TaskCursor", "clone_batches", "course_of", "reinforce_batches"]


@dataclass(frozen=True, slots=True)
class Iteration:
    """What one rollout and its updates came to, the last of them published as a version.

    ``groups`` are those learnt from: groups below the quorum are not among them, nor what
    strategies dropped or left out. ``load`` says what this process played, and how busy the engine
    was.

    Attributes:
        played: All groups that were played; ``None``: they are ``groups``.
        asynchrony: How they came about beside the learner, if they did.
    """

    number: int
    groups: Sequence[Group]
    credit: CreditResult
    policy_version: int
    rollout_s: float
    update_s: float
    load: Load | None = None
    played: Sequence[Group] | None = None
    asynchrony: Asynchrony | None = None

    @property
    def all_played(self) -> Sequence[Group]:
        """``played``, or else ``groups``."""
        return self.groups if self.played is None else self.played

    @property
    def success(self) -> float | None:
        """Share of finished episodes that succeeded; ``None`` if none finished."""
        known = [one.success for group in self.all_played for one in group.trajectories]
        finished = [float(one) for one in known if one is not None]
        return fmean(finished) if finished else None

    @property
    def reward(self) -> float | None:
        rewards = [one.reward for group in self.all_played for one in group.trajectories]
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
    course: Course | None = None,
    on_learnt: Callable[[Rollout, Learnt], None] = lambda *_: None,
) -> Generator[Batch, None, None]:
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
        course: That of the stage, as it stood after ``done`` iterations; ``None``: a new one.
        on_learnt: Called just before ``on_groups`` with what was played and what is learnt from.
    """
    started = clock() - spent_s
    course = course or course_of(stage, tasks=tasks, seed=seed, name=name, done=done)
    for number in range(done, stage.iterations):
        if number and _over(stage.max_seconds, clock() - started):
            return
        begun = clock()
        meter = Meter(runner.stats, runner.agent.engine, runner.clock)
        before = meter.mark()
        rollout = play_rounds(course, number, runner, loop)
        load = meter.since(before)
        groups: Sequence[Group] = rollout.groups
        for annotator in annotators if groups else ():
            groups = annotator.annotate(groups)
        assigned = credit.assign(groups) if groups else CreditResult(())
        assigned = with_diagnostics(groups, assigned)
        learnt = course.learn(number, groups, assigned)
        on_learnt(rollout, learnt)
        on_groups(learnt.fresh, learnt.fresh_credit)
        rolled_out = clock()
        batches = batches_from_groups(
            learnt.groups,
            learnt.credit,
            updates=stage.updates_per_iteration,
            trajectory_weighting=settings.trajectory_weighting,
            batch_id=f"{name}-{number}",
        )
        if settings.loss == "decoupled":
            batches = with_proximal_logprobs(batches, learner)
        yield from batches
        version = learner.publish()
        iteration = Iteration(
            number,
            learnt.fresh,
            learnt.fresh_credit,
            version,
            rolled_out - begun,
            clock() - rolled_out,
            load,
            played=[one.group for one in rollout.played],
        )
        if on_iteration(iteration):
            return


def _nothing_recorded(trajectory_id: str) -> Trajectory:
    raise DataError(
        f"the trajectory '{trajectory_id}' is to be replayed, and nothing is there to read it from"
    )


def course_of(
    stage: ReinforceStage,
    *,
    tasks: Sequence[Task],
    seed: int,
    name: str,
    recall: Recall = _nothing_recorded,
    done: int = 0,
) -> Course:
    """What decides on tasks, sizes of groups and replays in a stage; arguments as for ``Course``.

    Raises:
        UnknownPluginError, ConfigError: a strategy is unknown, or does not take its options.
    """
    return Course(
        {one.name: make("strategy", one.name, one.options) for one in stage.strategies},
        tasks=tasks,
        seed=seed,
        name=name,
        places=stage.tasks_per_iteration,
        group_size=stage.group_size,
        recall=recall,
        done=done,
    )


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
