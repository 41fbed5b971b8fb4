"""Wires the parts of a run; the only module that knows all of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from agentrl.assembly import Parts, assemble
from agentrl.config import CloneStage, LearnerConfig, ReinforceStage, RunConfig
from agentrl.core.protocols import Learner
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import Sampling, Trajectory, UpdateStats
from agentrl.evaluate.panel import evaluate_panel
from agentrl.evaluate.report import CurvePoint, Evaluation, RunReport, SuccessReport, write_report
from agentrl.progress import Progress
from agentrl.registry import make
from agentrl.rollout.runner import GroupRequest
from agentrl.run_directory import create_run_directory
from agentrl.stages import Iteration, TaskCursor, clone_batches, reinforce_batches
from agentrl.store.sqlite import SqliteStore
from agentrl.viewer.page import write_page

MODEL_DIRECTORY = "model"


def train(config: RunConfig, *, console: Console) -> RunReport:
    """Run all stages of ``config``; the run directory then holds model, store and report.

    Raises:
        AgentRLError: whatever stopped the run; what was finished until then is in the store.
    """
    run_dir = create_run_directory(config)
    with assemble(config) as parts, SqliteStore.create(run_dir) as store:
        return _Run(parts, store, run_dir, Progress(console)).execute()


@dataclass(slots=True)
class _Run:
    """A run while it runs."""

    parts: Parts
    store: SqliteStore
    run_dir: Path
    progress: Progress
    started: float = field(default_factory=time.perf_counter)
    iteration: int = 0
    episodes: int = 0
    tokens: int = 0
    curve: list[CurvePoint] = field(default_factory=list)

    @property
    def config(self) -> RunConfig:
        return self.parts.config

    def execute(self) -> RunReport:
        before: Evaluation | None = None
        stages = self.config.stages
        reinforces = any(isinstance(stage, ReinforceStage) for stage in stages)
        for number, stage in enumerate(stages):
            name = f"stage{number}"
            if before is None and (isinstance(stage, ReinforceStage) or not reinforces):
                before = self._test("before")
            if isinstance(stage, CloneStage):
                self._clone(stage, name)
            else:
                self._reinforce(stage, name)
        if before is None:
            before = self._test("before")
        after = self._test("after") if stages else before
        self.parts.save_model(self.run_dir / MODEL_DIRECTORY)
        report = RunReport.of(
            before, after, curve=self.curve, wall_s=time.perf_counter() - self.started
        )
        write_report(self.run_dir, report)
        write_page(self.run_dir, self.store)
        self.progress.report(report, self.run_dir)
        return report

    def _clone(self, stage: CloneStage, name: str) -> None:
        split = self.config.env.train_split
        tasks = self.parts.tasks(split)[: stage.demonstrations]
        learner = self._learner(stage.learner, stage.updates, name)
        batches = clone_batches(
            stage,
            factory=self.parts.factory,
            agent=self.parts.agent,
            loop=self.parts.loop,
            tasks=tasks,
            seed=derive_seed(self.config.seed, name),
        )
        with self.progress.stage(f"{name}: clone", stage.updates) as shown:

            def on_update(stats: UpdateStats) -> None:
                self.store.add_update(stats)
                shown.update(stats)

            learner.fit(batches, on_update=on_update)
        learner.publish()

    def _reinforce(self, stage: ReinforceStage, name: str) -> None:
        parts, seed = self.parts, derive_seed(self.config.seed, name)
        updates = stage.iterations * stage.updates_per_iteration
        learner = self._learner(stage.learner, updates, name)
        sampling = parts.sampling()
        with self.progress.stage(f"{name}: rl", stage.iterations) as shown:
            batches = reinforce_batches(
                stage,
                runner=parts.runner(sampling, partial(self._keep, "train")),
                loop=parts.loop,
                cursor=TaskCursor(parts.tasks(self.config.env.train_split), seed),
                credit=make("credit", stage.credit.name, stage.credit.options),
                annotators=(),
                learner=learner,
                weighting=self._learner_config(stage.learner),
                seed=seed,
                name=name,
                on_groups=self.store.add_credit,
                on_iteration=lambda done: self._iteration(done, name, shown),
            )

            learner.fit(batches, on_update=self._on_update)

    def _iteration(self, done: Iteration, name: str, shown: Any) -> bool:
        """Count, show and perhaps validate; True stops the stage."""
        self.iteration += 1
        played = [one for group in done.groups for one in group.trajectories]
        self.episodes += len(played)
        self.tokens += sum(one.sampled_tokens for one in played)
        settings = self.config.evaluation
        due = settings.every and (done.number + 1) % settings.every == 0
        validation = self._validate(f"validation/{name}/{done.number}") if due else None
        point = CurvePoint(
            iteration=done.number,
            episodes=self.episodes,
            tokens=self.tokens,
            wall_s=time.perf_counter() - self.started,
            train_success=done.success,
            train_reward=done.reward,
            validation=validation,
        )
        self.curve.append(point)
        self.store.add_event(
            "iteration", {"stage": name, **point.to_data()}, iteration=self.iteration
        )
        shown.iteration(done, point)
        goal = settings.early_stop_success
        return goal is not None and validation is not None and validation.success >= goal

    def _validate(self, purpose: str) -> SuccessReport:
        tasks = self.parts.tasks(
            self.config.env.validation_split, self.config.evaluation.validation_tasks
        )
        return self._panel(purpose, tasks, 1, self.parts.sampling())

    def _test(self, purpose: str) -> Evaluation:
        settings = self.config.evaluation
        tasks = self.parts.tasks(self.config.env.test_split, settings.tasks)
        with self.progress.status(f"evaluating on the test panel ({purpose})"):
            sampled = self._panel(purpose, tasks, settings.trials, self.parts.sampling())
            greedy = None
            if settings.greedy:
                greedy = self._panel(
                    f"{purpose}/greedy", tasks, 1, self.parts.sampling(greedy=True)
                )
        return Evaluation(sampled, greedy)

    def _panel(
        self, purpose: str, tasks: Sequence[Task], trials: int, sampling: Sampling
    ) -> SuccessReport:
        runner = self.parts.runner(sampling, partial(self._keep, purpose))
        # The panel's seed is the same before and after: the difference is paired.
        seed = derive_seed(self.config.seed, "panel")
        report = self.parts.loop.run(
            evaluate_panel(runner, tasks, trials=trials, seed=seed, name=purpose)
        )
        self.store.add_event(
            "evaluation", {"purpose": purpose, **report.to_data()}, iteration=self.iteration
        )
        return report

    def _keep(self, purpose: str, request: GroupRequest, trajectory: Trajectory) -> None:
        self.store.append(trajectory, task=request.task, iteration=self.iteration, purpose=purpose)

    def _on_update(self, stats: UpdateStats) -> None:
        self.store.add_update(stats, iteration=self.iteration)

    def _learner_config(self, overrides: dict[str, Any]) -> LearnerConfig:
        return LearnerConfig.model_validate({**self.config.learner.model_dump(), **overrides})

    def _learner(self, overrides: dict[str, Any], updates: int, name: str) -> Learner:
        return self.parts.learner(self._learner_config(overrides), updates, self.run_dir / name)
