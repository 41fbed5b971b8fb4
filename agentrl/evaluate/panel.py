"""Playing a fixed panel of tasks: every task exactly once per trial."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.core.task import Task
from agentrl.evaluate.report import SuccessReport, TaskOutcome
from agentrl.rollout.runner import GroupRequest, Runner

__all__ = ["evaluate_panel"]


async def evaluate_panel(
    runner: Runner, tasks: Sequence[Task], *, trials: int, seed: int, name: str
) -> SuccessReport:
    """Play every task ``trials`` times and report success with its interval.

    Args:
        runner: Plays; its agent's sampling is what is measured.
        tasks: The panel; each task once.
        trials: Episodes per task, numbered from 0.
        seed: Episode seeds derive from it, the task's id and the trial, so two evaluations with
            one seed are paired.
        name: Group ids begin with it.

    Raises:
        DataError: a task is in the panel twice.
        EpisodeError: nothing could be played.
    """
    groups = await runner.run(
        GroupRequest(f"{name}-{task.id}", task, trials, seed) for task in tasks
    )
    outcomes = [
        TaskOutcome.of(group.task, trajectory)
        for group in groups
        for trajectory in group.trajectories
    ]
    return SuccessReport.of(outcomes, panel=[task.id for task in tasks], trials=trials)
