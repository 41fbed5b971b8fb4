"""The training half of a run: its stages, with their records, warnings and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from agentrl.alarms import Alarms, uncorrected_loss, unpublished_learner
from agentrl.assembly import Parts
from agentrl.asynchronous import asynchronous_batches, iteration_of
from agentrl.checkpoints import Checkpoint, Checkpoints, RunState
from agentrl.config import CloneStage, LearnerConfig, ReinforceStage
from agentrl.core.protocols import Learner
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import Batch, CreditResult, Group, Trajectory, UpdateStats
from agentrl.evaluate.report import CurvePoint
from agentrl.panels import Panels
from agentrl.progress import Progress, StageProgress
from agentrl.registry import make
from agentrl.rollout.load import Meter
from agentrl.rollout.poison import Poison
from agentrl.rollout.runner import GroupRequest, Runner
from agentrl.rollout.taken import TAKEN, Taken, recorded_takes
from agentrl.stages import Iteration, clone_batches, course_of, reinforce_batches
from agentrl.store.sqlite import SqliteStore
from agentrl.strategies.course import Learnt, Rollout, use_of
from agentrl.trackers.measures import of_iteration, of_update
from agentrl.trackers.sending import Trackers

__all__ = ["Training"]


@dataclass(slots=True)
class Training:
    """Runs stages one after the other.

    Attributes:
        state: Where the run stands; every step moves it on.
        origin: The checkpoint that ``state`` was read from, if the run was resumed.
        curve: Points of the iterations so far.
        trackers: Told of every iteration and update as well.
        batch: What the learner learns from at present: on record with the update.
        clock: Seconds; at ``started`` the run would have begun had it never been stopped.
    """

    parts: Parts
    store: SqliteStore
    checkpoints: Checkpoints
    progress: Progress
    panels: Panels
    state: RunState
    started: float
    origin: Checkpoint | None = None
    curve: list[CurvePoint] = field(default_factory=list)
    trackers: Trackers = field(default_factory=Trackers)
    clock: Callable[[], float] = time.perf_counter
    stage_started: float = 0.0
    batch: Batch | None = None

    @property
    def wall_s(self) -> float:
        return self.clock() - self.started

    def warn(self, text: str) -> None:
        """Tell the user, and the run's record."""
        self.progress.warn(text)
        self.store.add_event("warning", {"text": text}, iteration=self.state.iteration)

    def run(self, number: int) -> None:
        """Stage ``number``, or what is left of it; it ends with a checkpoint."""
        stage, name, state = self.parts.config.stages[number], f"stage{number}", self.state
        settings = LearnerConfig.model_validate(
            {**self.parts.config.learner.model_dump(), **stage.learner}
        )
        seed = derive_seed(self.parts.config.seed, name)
        self.stage_started = self.clock() - state.stage_s
        if isinstance(stage, CloneStage):
            learner = self._learner(number, settings, stage.updates)
            self._clone(stage, name, learner, settings, seed)
        else:
            updates = stage.iterations * stage.updates_per_iteration
            learner = self._learner(number, settings, updates)
            self._reinforce(stage, name, learner, settings, seed)
        state.stage, state.step, self.stage_started = number + 1, 0, self.clock()
        state.course = {}
        self._save(learner)

    def _learner(self, number: int, settings: LearnerConfig, updates: int) -> Learner:
        learner = self.parts.learner(settings, updates, policy_version=self.state.policy_version)
        origin = self.origin
        if origin is not None and (origin.state.stage, origin.state.step > 0) == (number, True):
            learner.load(origin.learner)
        return learner

    def _clone(
        self, stage: CloneStage, name: str, learner: Learner, settings: LearnerConfig, seed: int
    ) -> None:
        parts, state, every = self.parts, self.state, self.checkpoints.settings.every_updates
        batches = clone_batches(
            stage,
            factory=parts.factory,
            agent=parts.agent,
            loop=parts.loop,
            tasks=parts.tasks(parts.config.env.train_split)[: stage.demonstrations],
            settings=settings,
            seed=seed,
            done=state.step,
            spent_s=state.stage_s,
        )
        with self.progress.stage(f"{name}: clone", stage.updates, state.step) as shown:

            def on_update(stats: UpdateStats) -> None:
                self._updated(stats, name, iteration=state.iteration)
                state.step += 1
                shown.update(stats)
                if every and state.step % every == 0 and state.step < stage.updates:
                    self._save(learner)

            learner.fit(self._noted(batches), on_update=on_update)
        state.policy_version = learner.publish()

    def _reinforce(
        self, stage: ReinforceStage, name: str, learner: Learner, settings: LearnerConfig, seed: int
    ) -> None:
        parts, state = self.parts, self.state
        alarms = Alarms(parts.config, first=state.step == 0)
        credit = make("credit", stage.credit.name, stage.credit.options)
        bound, base = parts.config.rollout.max_staleness, state.iteration - state.step
        if state.step == 0:
            for text in unpublished_learner(state.stage, stage.credit.name, credit, settings):
                self.warn(text)
            for text in uncorrected_loss(state.stage, settings, bound):
                self.warn(text)

        def keep(request: GroupRequest, trajectory: Trajectory) -> None:
            # Beside the learner, what is played belongs to the iteration of its place in the order.
            done = base + iteration_of(request, name) if bound else state.iteration
            self.store.append(trajectory, task=request.task, iteration=done + 1, purpose="train")

        def discarded(request: GroupRequest, group: Group) -> None:
            event = {"group": request.id, "task": request.task.id}
            self.store.add_event("discarded", event, iteration=state.iteration + 1)

        def on_update(stats: UpdateStats) -> None:
            self._updated(stats, name, iteration=state.iteration + 1)

        def on_learnt(rollout: Rollout, learnt: Learnt) -> None:
            if course.strategies:
                use = {"stage": name, **use_of(rollout, learnt)}
                self.store.add_event("course", use, iteration=state.iteration + 1)

        tasks = parts.tasks(parts.config.env.train_split)
        course = course_of(
            stage,
            tasks=tasks,
            seed=seed,
            name=name,
            recall=lambda one: self.store.trajectory(one).trajectory,
            done=state.step,
        )
        if state.course:
            course.load_state_dict(state.course)
        runner = self._runner(keep, discarded)
        meter = Meter(runner.stats, runner.agent.engine)
        with self.progress.stage(f"{name}: rl", stage.iterations, state.step, meter) as shown:

            def on_iteration(done: Iteration) -> bool:
                stop = self._count(done, name, shown, alarms)
                state.course = course.state_dict()
                every = self.checkpoints.settings.every
                if every and state.step % every == 0 and not stop and state.step < stage.iterations:
                    self._save(learner)
                return stop

            given: dict[str, Any] = {
                "runner": runner,
                "loop": parts.loop,
                "tasks": tasks,
                "credit": credit,
                "annotators": [
                    make("annotator", one.name, one.options, learner=learner)
                    for one in stage.annotators
                ],
                "learner": learner,
                "settings": settings,
                "seed": seed,
                "name": name,
                "on_iteration": on_iteration,
                "done": state.step,
                "spent_s": state.stage_s,
            }
            if bound:
                batches = self._beside(stage, **given)
            else:
                credited = self.store.add_credit
                batches = reinforce_batches(
                    stage, course=course, on_groups=credited, on_learnt=on_learnt, **given
                )
            with closing(batches):
                learner.fit(self._noted(batches), on_update=on_update)

    def _beside(
        self, stage: ReinforceStage, *, name: str, **given: Any
    ) -> Generator[Batch, None, None]:
        """The stage's batches, from rollouts that go on beside the learner."""
        limits, state, store = self.parts.config.rollout, self.state, self.store

        def on_taken(taken: Taken) -> None:
            event = {"stage": name, **taken.to_data()}
            store.add_event(TAKEN, event, iteration=state.iteration + 1)

        def on_carried_over(positions: Mapping[str, int]) -> None:
            event = {"stage": name, "groups": dict(positions)}
            store.add_event("carried_over", event, iteration=state.iteration)

        def on_groups(groups: Sequence[Group], credit: CreditResult) -> None:
            store.add_credit(groups, credit, iteration=state.iteration + 1)

        return asynchronous_batches(
            stage,
            name=name,
            max_staleness=limits.max_staleness,
            late_groups=limits.late_groups,
            version=state.policy_version,
            known=recorded_takes(store, name),
            on_taken=on_taken,
            on_carried_over=on_carried_over,
            on_groups=on_groups,
            **given,
        )

    def _runner(
        self,
        keep: Callable[[GroupRequest, Trajectory], None],
        discarded: Callable[[GroupRequest, Group], None],
    ) -> Runner:
        """What plays the training groups: with a quorum, and without the tasks set aside."""
        settings = self.parts.config.rollout
        failures = self.store.lasting_failures("train", settings.retries)
        # What stopped the whole run once is not tried again.
        failures |= dict.fromkeys(self.store.blocking_tasks("train"), settings.poison_after)
        runner = self.parts.runner(
            self.parts.sampling(), keep, lambda one: self.store.played(one.id)
        )
        return replace(
            runner,
            limits=replace(
                runner.limits,
                quorum=settings.quorum,
                straggler_s=settings.straggler_timeout_s,
            ),
            poison=Poison(settings.poison_after, failures, self._set_aside),
            on_discarded=discarded,
        )

    def _set_aside(self, task: Task, failures: int) -> None:
        """Called in the event loop's thread; store and console may be used from any."""
        self.store.add_event(
            "poisoned", {"task": task.id, "failures": failures}, iteration=self.state.iteration + 1
        )
        self.progress.warn(
            f"task {task.id} of the environment '{task.env}' is set aside: {failures} of its "
            "episodes failed for good while others finished. Look at them: agentrl view "
            f"{self.parts.config.run_dir} --task {task.id}"
        )

    def _count(self, done: Iteration, name: str, shown: StageProgress, alarms: Alarms) -> bool:
        """Count an iteration, show it, perhaps validate; True: success is as good as wanted."""
        state, settings = self.state, self.parts.config.evaluation
        state.step, state.iteration = done.number + 1, state.iteration + 1
        state.policy_version = done.policy_version
        played = [one for group in done.all_played for one in group.trajectories]
        state.episodes += len(played)
        state.tokens += sum(one.sampled_tokens for one in played)
        for text in alarms.look(done):
            self.warn(text)
        validation = None
        if settings.every and state.step % settings.every == 0:
            purpose = f"validation/{name}/{done.number}"
            validation = self.panels.validate(purpose, iteration=state.iteration)
        point = CurvePoint(
            iteration=done.number,
            episodes=state.episodes,
            tokens=state.tokens,
            wall_s=self.wall_s,
            train_success=done.success,
            train_reward=done.reward,
            validation=validation,
            credit=done.credit.metrics,
        )
        self.curve.append(point)
        event = {"stage": name, **point.to_data()}
        self.store.add_event("iteration", event, iteration=state.iteration)
        if done.load is not None:
            load = {"stage": name, "number": done.number, **done.load.to_data()}
            if done.asynchrony is not None:
                load["asynchrony"] = done.asynchrony.to_data()
            self.store.add_event("rollout", load, iteration=state.iteration)
        self.trackers.log(of_iteration(done, point), axis="iteration", step=state.iteration)
        shown.iteration(done, point)
        goal = settings.early_stop_success
        return goal is not None and validation is not None and validation.success >= goal

    def _noted(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """``batches``; the learner takes one when the update before it is made and recorded."""
        for self.batch in batches:
            yield self.batch

    def _updated(self, stats: UpdateStats, name: str, *, iteration: int) -> None:
        self.store.add_update(stats, iteration=iteration, batch=self.batch)
        self.trackers.log(of_update(name, stats), axis=f"{name}/update", step=stats.update)

    def _save(self, learner: Learner) -> None:
        state = self.state
        state.stage_s, state.wall_s = self.clock() - self.stage_started, self.wall_s
        state.event = self.store.last_event()
        # First the record, then what says how much of it is done.
        self.store.flush()
        self.checkpoints.save(state, learner)
