"""Runs for comparisons, made of a configuration, a curve and the outcomes on a panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agentrl.core.task import Task, content_hash
from agentrl.core.trajectory import StopReason
from agentrl.evaluate.report import CurvePoint
from agentrl.evaluate.success import SuccessReport, TaskOutcome
from agentrl.run_directory import create_run_directory
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.episodes import episode, failed_episode, group
from agentrl.testing.tiny_runs import tiny_run

Outcomes = Mapping[str, Sequence[bool | None]]
"""Success of each trial by the name of a task; ``None``: an infra failure."""


def problem(name: str, split: str = "test") -> Task:
    payload = {"name": name}
    return Task(content_hash(payload), "rooms", split, payload)


def make_run(
    path: Path,
    *overrides: str,
    seed: int = 1,
    curve: Sequence[tuple[int, int, float, float | None]] = (),
    after: Outcomes | None = None,
    greedy: Outcomes | None = None,
    finished: bool = True,
    validation: Sequence[str] = ("v0", "v1"),
) -> Path:
    """A run directory.

    Args:
        path: Where.
        overrides: Of its configuration.
        seed: Its seed.
        curve: Points ``(episodes, tokens, wall_s, success)``.
        after: Outcomes of the finished policy; ``greedy``: likewise.
        finished: Whether it came to its end.
        validation: Names of the tasks of its validation panel.
    """
    config = tiny_run(path, (f"seed={seed}", *overrides))
    create_run_directory(config)
    with SqliteStore.create(path) as store:
        for number, (episodes, tokens, wall_s, success) in enumerate(curve):
            validated = None
            if success is not None:
                purpose = f"validation/stage1/{number}"
                outcomes = {name: [True] for name in validation}
                validated = replace(_play(store, purpose, outcomes, "validation"), success=success)
            point = CurvePoint(number, episodes, tokens, wall_s, 0.25, None, validated)
            store.add_event("iteration", {"stage": "stage1", **point.to_data()}, iteration=number)
        for purpose, panel in (("after", after), ("after/greedy", greedy)):
            if panel is not None:
                _play(store, purpose, panel, "test")
        if finished:
            store.add_event("finished", {"wall_s": 1.0})
    return path


def _play(store: SqliteStore, purpose: str, panel: Outcomes, split: str) -> SuccessReport:
    """Record the episodes of a panel and its report."""
    outcomes = []
    for name, trials in panel.items():
        task = problem(name, split)
        for trial, success in enumerate(trials):
            played = (
                failed_episode("x")
                if success is None
                else replace(episode("x", ("hall", float(success))), success=success)
            )
            (played,) = group(f"{purpose}-{task.id}", played).trajectories
            played = replace(
                played, id=f"{purpose}-{task.id}/{trial}/0", task_id=task.id, trial=trial
            )
            store.append(played, task=task, iteration=0, purpose=purpose)
            outcomes.append(
                TaskOutcome(
                    task_id=task.id,
                    kind="",
                    trial=trial,
                    success=success,
                    reward=None if success is None else float(success),
                    steps=1,
                    stop_reason=StopReason.TERMINATED,
                    failure=played.failure,
                )
            )
    count = len(next(iter(panel.values())))
    report = SuccessReport.of(
        outcomes, panel=[problem(name, split).id for name in panel], trials=count
    )
    store.add_event("evaluation", {"purpose": purpose, **report.to_data()})
    return report
