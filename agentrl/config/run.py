"""The whole run file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from agentrl.config.agent import AgentConfig, EngineConfig, SamplingConfig
from agentrl.config.env import EnvConfig
from agentrl.config.learner import LearnerConfig
from agentrl.config.model import ModelConfig
from agentrl.config.rollout import RolloutConfig
from agentrl.config.section import PluginConfig, Section
from agentrl.config.stages import Stage

__all__ = ["CheckpointsConfig", "EvaluationConfig", "RunConfig", "StoreConfig"]


class EvaluationConfig(Section):
    """How success is measured."""

    tasks: int = Field(256, ge=1, description="Size of the test panel.")
    validation_tasks: int = Field(128, ge=1)
    every: int = Field(10, ge=0, description="Iterations between validations; 0: never.")
    trials: int = Field(1, ge=1)
    greedy: bool = Field(True, description="Report greedy success as well as sampled.")
    early_stop_success: float | None = Field(
        None, gt=0, le=1, description="Stop when validation success reaches this."
    )


class StoreConfig(Section):
    """How safe what was played is. It survives the end of the process, however it comes about."""

    synchronous: Literal["normal", "full"] = Field(
        "normal", description="full: also a power cut, at a few milliseconds an episode."
    )


class CheckpointsConfig(Section):
    """What a killed run goes on from. Played episodes are in the store and are never lost."""

    every: int = Field(
        5, ge=0, description="rl iterations between checkpoints; 0: stage ends only."
    )
    every_updates: int = Field(100, ge=0, description="The same for the updates of clone stages.")
    keep: int = Field(2, ge=1, description="The newest checkpoints; older ones are deleted.")


class RunConfig(Section):
    """A whole run."""

    run_dir: Path = Path("runs/run")
    seed: int = 0
    threads: int = Field(0, ge=0, description="torch threads; 0: one per physical core.")
    deterministic: bool = Field(
        False, description="Same weights to the last bit each time, also after a kill; slower."
    )
    model: ModelConfig
    env: EnvConfig
    agent: AgentConfig = AgentConfig()
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig()
    rollout: RolloutConfig = RolloutConfig()
    store: StoreConfig = StoreConfig()
    learner: LearnerConfig = LearnerConfig()
    stages: tuple[Stage, ...] = ()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoints: CheckpointsConfig = CheckpointsConfig()
    trackers: tuple[PluginConfig, ...] = Field(
        (), description="Where numbers go as well: tensorboard, wandb. Keys never stand here."
    )

    @model_validator(mode="before")
    @classmethod
    def _loss_of_older_samples(cls, data: Any) -> Any:
        """Where nothing else is asked for, older samples are learnt from with ``decoupled``."""
        if not isinstance(data, dict) or not _staleness(data.get("rollout")):
            return data
        learner = data.get("learner", {})
        if isinstance(learner, LearnerConfig):
            learner = learner.model_dump(exclude_unset=True)
        if not isinstance(learner, dict) or "loss" in learner:
            return data
        return {**data, "learner": {**learner, "loss": "decoupled"}}

    @model_validator(mode="after")
    def _trackers_differ(self) -> RunConfig:
        names = [one.name for one in self.trackers]
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise ValueError(f"trackers names {twice[0]} twice: a run has one of each")
        return self


def _staleness(rollout: Any) -> Any:
    """What is given as ``max_staleness``, right or wrong."""
    if isinstance(rollout, RolloutConfig):
        return rollout.max_staleness
    return rollout.get("max_staleness") if isinstance(rollout, dict) else None
