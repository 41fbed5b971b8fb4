"""What a run file says will happen, in words."""

from __future__ import annotations

from pathlib import Path

from agentrl.config import CloneStage, ReinforceStage, RunConfig

__all__ = ["beginning", "episodes_of", "evaluation_words", "model_words", "stage_words"]


def beginning(config: RunConfig) -> str:
    """One line of what begins."""
    stages = ", then ".join(_briefly(stage) for stage in config.stages) or "an evaluation"
    return f"run {config.run_dir}: {model_words(config)} plays {config.env.name}; {stages}"


def model_words(config: RunConfig) -> str:
    """The policy."""
    create, path = config.model.create, config.model.path
    if create is None:
        here = str(path).startswith("builtin:") or Path(str(path)).expanduser().is_dir()
        return str(path) if here else f"{path} (from the hub or its cache)"
    return f"a new tiny model ({create.layers} layers, width {create.hidden_size})"


def _briefly(stage: CloneStage | ReinforceStage) -> str:
    if isinstance(stage, CloneStage):
        return f"{stage.updates:,} updates of cloning"
    return f"{stage.iterations:,} iterations of rl with {stage.credit.name}"


def stage_words(config: RunConfig, stage: CloneStage | ReinforceStage) -> str:
    """A stage with its sizes."""
    limit = "" if stage.max_seconds is None else f", or {stage.max_seconds:g} s"
    if isinstance(stage, CloneStage):
        return (
            f"clone: {stage.updates:,} updates of {stage.episodes_per_update} demonstrated "
            f"episodes{limit}"
        )
    updates = stage.iterations * stage.updates_per_iteration
    return (
        f"rl: {stage.iterations:,} iterations of {stage.tasks_per_iteration} tasks x "
        f"{stage.group_size} episodes = {episodes_of(stage):,} episodes of at most "
        f"{config.agent.max_steps} steps, {updates:,} updates, credit {stage.credit.name}{limit}"
    )


def episodes_of(stage: CloneStage | ReinforceStage) -> int:
    """Episodes that a stage plays for training."""
    if isinstance(stage, CloneStage):
        return 0
    return stage.iterations * stage.tasks_per_iteration * stage.group_size


def evaluation_words(config: RunConfig, *, validates: bool) -> str:
    """What is measured, and when."""
    settings = config.evaluation
    how = "sampled and greedy" if settings.greedy else "sampled"
    when = "before and after" if config.stages else "once"
    words = f"{settings.tasks} tasks of '{config.env.test_split}' {when}, {how}"
    if validates:
        words += (
            f"; {settings.validation_tasks} of '{config.env.validation_split}' every "
            f"{settings.every} iterations"
        )
    return words
