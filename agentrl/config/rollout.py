"""The run file's ``rollout``: limits of the play."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from agentrl.config.section import Section

__all__ = ["RolloutConfig"]


class RolloutConfig(Section):
    """Limits of the play; docs/reference/faults.md says what becomes of every fault."""

    concurrency: int = Field(128, ge=1, description="Episodes in flight.")
    env_concurrency: int = Field(
        0, ge=0, description="Of these, how many of one environment; 0: no limit."
    )
    tokens_in_flight: int = Field(
        0, ge=0, description="Prompts and longest answers sampled at once; 0: no limit."
    )
    retries: int = Field(2, ge=0, description="New attempts after an infra failure.")
    backoff_s: float = Field(0.5, ge=0, description="Pause before the first; then it doubles.")
    make_timeout_s: float = Field(300.0, gt=0, description="Deadline of making an environment.")
    reset_timeout_s: float = Field(120.0, gt=0)
    step_timeout_s: float = Field(120.0, gt=0)
    close_timeout_s: float = Field(30.0, gt=0)
    sample_timeout_s: float = Field(600.0, gt=0, description="Also of a view of the memory.")
    episode_timeout_s: float | None = Field(
        None, gt=0, description="Of a whole attempt; null: what its other limits add up to."
    )
    stall_timeout_s: float | None = Field(
        None, gt=0, description="Nothing moves for so long: stop; null: twice the longest deadline."
    )
    give_up_after: int = Field(
        16, ge=1, description="Stop the run after this many failed episodes with none finished."
    )
    poison_after: int = Field(
        4, ge=0, description="Episodes of a task that failed for good set it aside; 0: never."
    )
    quorum: int = Field(
        0, ge=0, description="Episodes that a training group needs; 0: whatever finished."
    )
    straggler_timeout_s: float | None = Field(
        None, gt=0, description="Abandon the rest of a group so long after its quorum."
    )

    max_staleness: int = Field(
        0,
        ge=0,
        description="Policy versions that samples may be behind the learner; 0: it waits for them.",
    )
    late_groups: Literal["wait", "drop"] = Field(
        "wait",
        description="Groups that would grow older than that: the learner waits, or they are lost.",
    )

    @property
    def longest_call_s(self) -> float:
        """The longest deadline of a single call."""
        env = (self.make_timeout_s, self.reset_timeout_s, self.step_timeout_s, self.close_timeout_s)
        return max(*env, self.sample_timeout_s)

    @model_validator(mode="after")
    def _limits_fit(self) -> RolloutConfig:
        if self.straggler_timeout_s is not None and not self.quorum:
            raise ValueError(
                "straggler_timeout_s abandons what comes after a quorum, and quorum is 0: set "
                "quorum, or remove straggler_timeout_s"
            )
        stall_s = self.stall_timeout_s
        if stall_s is not None and stall_s <= self.longest_call_s:
            raise ValueError(
                f"stall_timeout_s={stall_s:g} must exceed the longest deadline, "
                f"{self.longest_call_s:g} s: a call may take that long"
            )
        return self
