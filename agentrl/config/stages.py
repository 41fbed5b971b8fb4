"""The run file's ``stages``: what a run does, one thing after the other."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from agentrl.config.section import PluginConfig, Section

__all__ = ["CloneStage", "ReinforceStage", "Stage"]


class CloneStage(Section):
    """Behaviour cloning from the environment's expert."""

    kind: Literal["clone"]
    updates: int = Field(200, ge=1)
    episodes_per_update: int = Field(32, ge=1)
    demonstrations: int = Field(4096, ge=1, description="Tasks of the train split to clone from.")
    noise: float = Field(0.0, ge=0, lt=1, description="Share of random admissible commands.")
    imitate_noise: bool = Field(
        False, description="Clone the random commands too: the expert is clumsy, so is its clone."
    )
    learner: dict[str, Any] = Field(default_factory=dict, description="Overrides of learner.")
    max_seconds: float | None = Field(None, gt=0)


class ReinforceStage(Section):
    """Reinforcement learning from episodes."""

    kind: Literal["rl"]
    iterations: int = Field(100, ge=1)
    tasks_per_iteration: int = Field(16, ge=1)
    group_size: int = Field(8, ge=1)
    updates_per_iteration: int = Field(1, ge=1)
    credit: PluginConfig = PluginConfig(name="gigpo")
    annotators: tuple[PluginConfig, ...] = Field(
        (), description="Add to finished groups what credit needs (hidden_states for bipace)."
    )
    strategies: tuple[PluginConfig, ...] = Field(
        (), description="Which tasks are played how often, and what is replayed: adaptive, ..."
    )
    learner: dict[str, Any] = Field(default_factory=dict, description="Overrides of learner.")
    max_seconds: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _strategies_differ(self) -> ReinforceStage:
        names = [one.name for one in self.strategies]
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise ValueError(f"strategies names {twice[0]} twice: a stage has one of each")
        return self

    @model_validator(mode="after")
    def _groups_fit(self) -> ReinforceStage:
        if self.updates_per_iteration > self.tasks_per_iteration:
            raise ValueError(
                f"updates_per_iteration={self.updates_per_iteration} exceeds tasks_per_iteration="
                f"{self.tasks_per_iteration}: a group is never split across updates"
            )
        return self


Stage = Annotated[CloneStage | ReinforceStage, Field(discriminator="kind")]
