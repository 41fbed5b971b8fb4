"""The run file's ``env``."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from agentrl.config.section import Section

__all__ = ["EnvConfig", "WorkersConfig"]


class WorkersConfig(Section):
    """Processes of their own for episodes: what blocks or dies there stops nothing else."""

    processes: int = Field(0, ge=0, description="0: episodes are played in the run's own process.")
    episodes: int | None = Field(
        None, ge=1, description="In one process at a time; null: rollout.concurrency shared out."
    )
    python: str | None = Field(
        None, description="Interpreter with the environment's packages; null: this one."
    )
    start_timeout_s: float = Field(120.0, gt=0, description="Until a process has its factory.")
    grace_s: float = Field(
        10.0, gt=0, description="To close what was cancelled; then the process is killed."
    )

    @model_validator(mode="after")
    def _are_there(self) -> WorkersConfig:
        if not self.processes and (self.python is not None or self.episodes is not None):
            given = "python" if self.python is not None else "episodes"
            raise ValueError(
                f"{given} is of worker processes, and processes is 0: set processes to 1 or more, "
                f"or remove {given}"
            )
        return self


class EnvConfig(Section):
    """The environment and which of its splits serve what."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    train_split: str = "train"
    validation_split: str = Field("validation", description="For the curve and early stopping.")
    test_split: str = Field("test", description="Touched twice: before and after.")
    workers: WorkersConfig = WorkersConfig()

    @model_validator(mode="after")
    def _splits_differ(self) -> EnvConfig:
        splits = (self.train_split, self.validation_split, self.test_split)
        if self.test_split in splits[:2] or self.train_split == self.validation_split:
            raise ValueError(
                f"train_split, validation_split and test_split must differ, got {splits}: what is "
                "trained or tuned on measures nothing"
            )
        return self
