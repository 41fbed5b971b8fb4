"""The evaluations of a run: every panel is played once, also by a run that was killed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from agentrl.assembly import Parts
from agentrl.checkpoints import RunState
from agentrl.core.errors import DataError
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import Sampling, Trajectory
from agentrl.evaluate.panel import evaluate_panel
from agentrl.evaluate.report import Evaluation, SuccessReport
from agentrl.rollout.runner import GroupRequest
from agentrl.store.sqlite import SqliteStore

__all__ = ["Panels"]


@dataclass(frozen=True, slots=True)
class Panels:
    """Plays panels with the weights as they are; episodes in the store are not played again."""

    parts: Parts
    store: SqliteStore
    state: RunState

    def test(self, purpose: str, *, iteration: int) -> Evaluation:
        """Success on the test panel, after ``iteration``; purposes are ``before`` and ``after``."""
        settings, split = self.parts.config.evaluation, self.parts.config.env.test_split
        tasks = self.parts.tasks(split, settings.tasks)
        drawn, most_likely = self.parts.sampling(), self.parts.sampling(greedy=True)
        sampled = self._panel(purpose, tasks, settings.trials, drawn, iteration)
        greedy = None
        if settings.greedy:
            greedy = self._panel(f"{purpose}/greedy", tasks, 1, most_likely, iteration)
        return Evaluation(sampled, greedy)

    def validate(self, purpose: str, *, iteration: int) -> SuccessReport:
        """Success on the validation panel, sampled as in training."""
        settings, split = self.parts.config.evaluation, self.parts.config.env.validation_split
        tasks = self.parts.tasks(split, settings.validation_tasks)
        return self._panel(purpose, tasks, 1, self.parts.sampling(), iteration)

    def _panel(
        self, purpose: str, tasks: Sequence[Task], trials: int, sampling: Sampling, iteration: int
    ) -> SuccessReport:
        measured = purpose in self.state.measured

        def keep(request: GroupRequest, trajectory: Trajectory) -> None:
            if measured:
                # The weights have changed since: what is played now would be another policy's.
                raise DataError(
                    f"the evaluation '{purpose}' was finished, and the store lacks its episode "
                    f"'{trajectory.id}': it was changed since. Restore it from a copy, or start a "
                    "new run in another directory"
                )
            self.store.append(trajectory, task=request.task, iteration=iteration, purpose=purpose)

        runner = self.parts.runner(sampling, keep, partial(_recorded, self.store))
        if measured:
            # Also where episodes failed: what was measured stands, whatever the limits are now.
            runner = replace(runner, limits=replace(runner.limits, retries=0))
        # The panel's seed is the same before and after: the difference is paired.
        seed = derive_seed(self.parts.config.seed, "panel")
        report = self.parts.loop.run(
            evaluate_panel(runner, tasks, trials=trials, seed=seed, name=purpose),
            on_given_up=runner.blame,
        )
        if not measured:
            event = {"purpose": purpose, **report.to_data()}
            self.store.add_event("evaluation", event, iteration=iteration)
            self.state.measured.append(purpose)
        return report


def _recorded(store: SqliteStore, request: GroupRequest) -> dict[int, Trajectory]:
    return store.played(request.id)
