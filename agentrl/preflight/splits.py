"""Whether the environment has the splits that a run plays, with tasks enough, and disjoint."""

from __future__ import annotations

from functools import partial

from agentrl.assembly import tasks_of
from agentrl.config import CloneStage, ReinforceStage, RunConfig
from agentrl.core.errors import DataError
from agentrl.core.protocols import Demonstrator, EnvFactory
from agentrl.preflight.problems import Problems

__all__ = ["check_splits", "splits_played", "validates"]


def validates(config: RunConfig) -> bool:
    """Whether the run plays its validation panel."""
    reinforces = any(isinstance(stage, ReinforceStage) for stage in config.stages)
    return reinforces and config.evaluation.every > 0


def splits_played(config: RunConfig) -> dict[str, int | None]:
    """Each split that the run plays, and how many tasks it takes of it (``None``: all)."""
    env, evaluation = config.env, config.evaluation
    played: dict[str, int | None] = {env.train_split: None} if config.stages else {}
    if validates(config):
        played[env.validation_split] = evaluation.validation_tasks
    return played | {env.test_split: evaluation.tasks}


def check_splits(config: RunConfig, factory: EnvFactory, problems: Problems) -> None:
    """Collect what is wrong with the tasks, and with cloning from them."""
    for number, stage in enumerate(config.stages):
        if isinstance(stage, CloneStage) and not isinstance(factory, Demonstrator):
            problems.add(
                f"stages.{number} (clone) needs an expert, and the environment "
                f"'{config.env.name}' has none: give its factory a method demonstrate(task, *, "
                "seed, noise), or start from a model that exists and remove the stage"
            )
    found = {
        split: problems.attempt(partial(tasks_of, config, factory, split, count))
        for split, count in splits_played(config).items()
    }
    trained = {one.id for one in found.pop(config.env.train_split, None) or ()}
    for split, tasks in found.items():
        both = [one.id for one in tasks or () if one.id in trained]
        if both:
            problems.attempt(partial(_refuse_overlap, config, split, len(tasks or ()), both))


def _refuse_overlap(config: RunConfig, split: str, count: int, both: list[str]) -> None:
    raise DataError(
        f"{len(both)} of the {count} tasks of the split '{split}' are also in "
        f"'{config.env.train_split}' (the first: {both[0]}): what is trained on measures nothing. "
        f"Let the environment '{config.env.name}' share its tasks out by their content"
    )
