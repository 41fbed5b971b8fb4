"""What is asked of a store and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agentrl.core.errors import DataError, nearest
from agentrl.core.task import Task
from agentrl.core.trajectory import Failure, StopReason, Trajectory

Outcome = Literal["success", "failure", "infra", "unknown"]
OUTCOMES: tuple[Outcome, ...] = ("success", "failure", "infra", "unknown")
Range = tuple[float | None, float | None]


def outcome_of(trajectory: Trajectory) -> Outcome:
    """The one word for how an episode came out.

    ``infra``: the machine failed, whatever else is known. ``unknown``: the environment never said
    whether the task was solved. Neither is a ``failure``, which is the policy's.
    """
    if trajectory.failure is not None:
        return "infra"
    if trajectory.success is None:
        return "unknown"
    return "success" if trajectory.success else "failure"


@dataclass(frozen=True, slots=True)
class TrajectoryFilter:
    """Which trajectories to list; every field that is not ``None`` must hold.

    Attributes:
        purpose: Matches itself and what lies beneath: ``train`` also finds ``train/stage1``.
        reward: ``(low, high)``, ends included, ``None`` for an open end; unscored ones never match.
        advantage: Likewise; matches if the advantage of any step lies in it.
        last: The newest ones are listed first.
    """

    task_id: str | None = None
    group_id: str | None = None
    kind: str | None = None
    purpose: str | None = None
    outcome: Outcome | None = None
    stop_reason: StopReason | None = None
    iteration: int | None = None
    reward: Range | None = None
    advantage: Range | None = None
    last: bool = False
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.outcome is not None and self.outcome not in OUTCOMES:
            raise DataError(
                f"unknown outcome '{self.outcome}'{nearest(self.outcome, OUTCOMES)} "
                f"Known: {', '.join(OUTCOMES)}"
            )
        if self.limit is not None and self.limit < 0:
            raise DataError(f"limit must be 0 or more, got {self.limit}")


@dataclass(frozen=True, slots=True)
class TrajectorySummary:
    """One trajectory as one line of a list.

    Attributes:
        reward: Sum of the step rewards, ``None`` if not scored.
        oldest_version: The oldest policy version that sampled any of it; ``newest_version``
            the newest.
        takes_part: Whether credit used it; ``None`` if no credit was recorded.
        advantage_low: Least advantage of its steps, ``advantage_high`` the greatest; ``None``
            without credit.
    """

    id: str
    group_id: str
    task_id: str
    env: str
    split: str
    kind: str
    purpose: str
    iteration: int
    trial: int
    attempt: int
    outcome: Outcome
    success: bool | None
    stop_reason: StopReason
    failure: Failure | None
    reward: float | None
    steps: int
    sampled_tokens: int
    oldest_version: int
    newest_version: int
    wall_s: float
    takes_part: bool | None
    advantage_low: float | None
    advantage_high: float | None


@dataclass(frozen=True, slots=True)
class TrajectoryCredit:
    """The credit of one trajectory; ``None`` in ``step_advantages``: it took no part.

    Attributes:
        token_advantages: Per step, per sampled token; ``None`` if the estimator works by step.
        parts: Named components of the step advantages, one value per step.
        groups: Named partitions, one integer label per step. Equal labels within one call of
            the estimator mean that the steps were compared with each other.
        group_sizes: For each partition, how many steps of the trajectory's group share the label
            of each step (itself included). A negative label is no group: the step is alone.
    """

    step_advantages: tuple[float, ...] | None
    token_advantages: tuple[tuple[float, ...], ...] | None = None
    parts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    group_sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredTrajectory:
    """One trajectory with what the run knew about it. ``credit`` is ``None`` if none was given."""

    trajectory: Trajectory
    task: Task
    summary: TrajectorySummary
    credit: TrajectoryCredit | None


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened in the run: ``update``, ``evaluation``, ``credit``, ``resume``."""

    sequence: int
    kind: str
    iteration: int
    data: Mapping[str, Any]
