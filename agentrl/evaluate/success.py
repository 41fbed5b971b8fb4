"""From the outcomes of a panel of tasks to a success rate one can trust."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any, Self

from agentrl.core.errors import DataError
from agentrl.core.task import Task
from agentrl.core.trajectory import Failure, StopReason, Trajectory
from agentrl.evaluate.statistics import (
    Estimate,
    PassRate,
    bootstrap_by_task,
    pass_rates,
    wilson_interval,
)

__all__ = ["KindReport", "SuccessReport", "TaskOutcome"]


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """How one episode of an evaluation came out.

    Attributes:
        success: Whether the task was solved; ``None`` exactly for an infra failure.
        reward: Sum of its rewards; ``None`` if it could not be scored.
        failure: The infra failure, if there was one.
    """

    task_id: str
    kind: str
    trial: int
    success: bool | None
    reward: float | None
    steps: int
    stop_reason: StopReason
    failure: Failure | None = None
    sampled_tokens: int = 0

    @classmethod
    def of(cls, task: Task, trajectory: Trajectory) -> Self:
        """The outcome of a trajectory.

        An episode that ran out of a budget before the environment knew has not solved its task.

        Raises:
            DataError: the environment ended the episode and did not say whether it succeeded.
        """
        success = trajectory.success
        if trajectory.failure is not None:
            success = None
        elif success is None:
            if trajectory.stop_reason is StopReason.TERMINATED:
                raise DataError(
                    f"trajectory '{trajectory.id}': the environment '{task.env}' ended the episode "
                    "and left success at None; set StepResult.success when it is terminated"
                )
            success = False
        return cls(
            task_id=task.id,
            kind=task.kind,
            trial=trajectory.trial,
            success=success,
            reward=trajectory.reward,
            steps=len(trajectory.steps),
            stop_reason=trajectory.stop_reason,
            failure=trajectory.failure,
            sampled_tokens=trajectory.sampled_tokens,
        )


@dataclass(frozen=True, slots=True)
class KindReport:
    """Success on the tasks of one kind; ``None`` if none of its episodes was scored."""

    success: float | None
    low: float | None
    high: float | None
    tasks: int
    episodes: int
    infra_failures: int


@dataclass(frozen=True, slots=True)
class SuccessReport:
    """Success on a panel.

    Attributes:
        success: Mean over tasks of the share of scored trials that succeeded.
        low: Lower end of its interval, ``high`` the upper; ``method`` says how it was made:
            Wilson's interval for one trial a task, a bootstrap over tasks for several.
        tasks: Size of the panel. trials: episodes a task. episodes: their product.
        scored_tasks: Tasks with at least one scored episode; the mean is over them.
        infra_failures: Episodes that the machine broke. They are excluded from ``success``.
        success_if_failed: What success would be if they counted as failed.
        exclusion: The exclusion in words; empty if there was none.
        mean_steps: Over scored episodes, as ``mean_tokens`` (sampled ones) and ``mean_reward``
            (over those that have a reward; ``None`` if none has).
        stop_reasons: How many episodes ended why, infra failures among them.
        failures: How many infra failures of which error.
        pass_rates: pass@k and pass^k for k up to ``trials``, if that is more than 1.
        outcomes: What all this was made of; not written to reports.
    """

    success: float
    low: float
    high: float
    method: str
    confidence: float
    tasks: int
    trials: int
    episodes: int
    scored_tasks: int
    infra_failures: int
    success_if_failed: float
    exclusion: str
    mean_reward: float | None
    mean_steps: float
    mean_tokens: float
    by_kind: Mapping[str, KindReport]
    stop_reasons: Mapping[str, int]
    failures: Mapping[str, int]
    pass_rates: tuple[PassRate, ...] = ()
    outcomes: tuple[TaskOutcome, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def of(
        cls,
        outcomes: Sequence[TaskOutcome],
        *,
        panel: Sequence[str],
        trials: int = 1,
        seed: int = 0,
        confidence: float = 0.95,
    ) -> Self:
        """The report of a panel.

        Args:
            outcomes: One for every task and trial, in any order.
            panel: Ids of the tasks that had to be played.
            trials: Episodes a task, numbered from 0.
            seed: Seed of the bootstrap.
            confidence: Coverage of the intervals.

        Raises:
            DataError: a task is missing, doubled or foreign, an outcome contradicts itself, or
                every episode was an infra failure.
        """
        by_task = _checked(outcomes, panel, trials)
        scored = [one for one in outcomes if one.success is not None]
        if not scored:
            first = next((one.failure for one in outcomes if one.failure), None)
            raise DataError(
                f"all {len(outcomes)} episodes of the evaluation were infra failures, so success "
                f"is unknown; the first: {first}. Mend the cause and evaluate again"
            )
        estimate = _estimate(by_task, trials, seed, confidence)
        broken = len(outcomes) - len(scored)
        if_failed = fmean(fmean(bool(one.success) for one in some) for some in by_task.values())
        rewards = [one.reward for one in scored if one.reward is not None]
        return cls(
            success=estimate.value,
            low=estimate.low,
            high=estimate.high,
            method=estimate.method,
            confidence=confidence,
            tasks=len(by_task),
            trials=trials,
            episodes=len(outcomes),
            scored_tasks=len({one.task_id for one in scored}),
            infra_failures=broken,
            success_if_failed=if_failed,
            exclusion=_exclusion(broken, len(outcomes), if_failed),
            mean_reward=fmean(rewards) if rewards else None,
            mean_steps=fmean(one.steps for one in scored),
            mean_tokens=fmean(one.sampled_tokens for one in scored),
            by_kind=_by_kind(by_task, trials, seed, confidence),
            stop_reasons=_counts(one.stop_reason.value for one in outcomes),
            failures=_counts(one.failure.error for one in outcomes if one.failure),
            pass_rates=_pass_rates(by_task, trials),
            outcomes=tuple(one for some in by_task.values() for one in some),
        )

    def by_task(self) -> dict[str, list[float]]:
        """Task id to the success of each scored trial: what a paired comparison needs."""
        found: dict[str, list[float]] = {one.task_id: [] for one in self.outcomes}
        for one in self.outcomes:
            if one.success is not None:
                found[one.task_id].append(float(one.success))
        return found

    def to_data(self) -> dict[str, Any]:
        """Plain data for JSON, without the single outcomes."""
        data = asdict(self)
        del data["outcomes"]
        data["pass_rates"] = list(data["pass_rates"])
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """What ``to_data`` gave."""
        nested = {
            "by_kind": {kind: KindReport(**one) for kind, one in data["by_kind"].items()},
            "pass_rates": tuple(PassRate(**one) for one in data["pass_rates"]),
        }
        return cls(**{**data, **nested})


def _checked(
    outcomes: Sequence[TaskOutcome], panel: Sequence[str], trials: int
) -> dict[str, list[TaskOutcome]]:
    """Outcomes by task in the order of the panel, every task exactly once per trial."""
    doubled = [task for task, count in Counter(panel).items() if count > 1]
    if doubled:
        raise DataError(
            f"the panel lists {len(doubled)} tasks more than once (first: '{doubled[0]}'); "
            "each task counts once"
        )
    by_task: dict[str, list[TaskOutcome]] = {task: [] for task in panel}
    for one in outcomes:
        if (one.success is None) != (one.failure is not None):
            raise DataError(
                f"outcome of task '{one.task_id}', trial {one.trial}: success is {one.success} and "
                f"failure is {one.failure}; success is None exactly for an infra failure"
            )
        if one.task_id not in by_task:
            raise DataError(f"task '{one.task_id}' was played, but is not in the panel")
        by_task[one.task_id].append(one)
    wanted = list(range(trials))
    for task, some in by_task.items():
        some.sort(key=lambda one: one.trial)
        played = [one.trial for one in some]
        if played != wanted:
            raise DataError(
                f"task '{task}' was played in trials {played}, expected {wanted}: every task "
                "exactly once per trial. Check how the panel was shared out"
            )
    return by_task


def _estimate(
    by_task: Mapping[str, Sequence[TaskOutcome]], trials: int, seed: int, confidence: float
) -> Estimate:
    values = [
        [float(one.success) for one in some if one.success is not None] for some in by_task.values()
    ]
    values = [one for one in values if one]
    if trials == 1:
        solved = int(sum(one[0] for one in values))
        low, high = wilson_interval(solved, len(values), confidence=confidence)
        return Estimate(solved / len(values), low, high, "Wilson")
    return bootstrap_by_task(values, seed=seed, confidence=confidence, bounds=(0.0, 1.0))


def _by_kind(
    by_task: Mapping[str, Sequence[TaskOutcome]], trials: int, seed: int, confidence: float
) -> dict[str, KindReport]:
    kinds = sorted({one.kind for some in by_task.values() for one in some})
    reports = {}
    for kind in kinds:
        own = {task: some for task, some in by_task.items() if some[0].kind == kind}
        episodes = [one for some in own.values() for one in some]
        broken = sum(one.success is None for one in episodes)
        estimate = None
        if broken < len(episodes):
            estimate = _estimate(own, trials, seed, confidence)
        reports[kind] = KindReport(
            success=estimate.value if estimate else None,
            low=estimate.low if estimate else None,
            high=estimate.high if estimate else None,
            tasks=len(own),
            episodes=len(episodes),
            infra_failures=broken,
        )
    return reports


def _pass_rates(by_task: Mapping[str, Sequence[TaskOutcome]], trials: int) -> tuple[PassRate, ...]:
    if trials == 1:
        return ()
    outcomes = {task: [one.success for one in some] for task, some in by_task.items()}
    return pass_rates(outcomes, range(1, trials + 1))


def _exclusion(broken: int, episodes: int, if_failed: float) -> str:
    if not broken:
        return ""
    return (
        f"{broken} of {episodes} episodes were infra failures and are excluded; counted as failed, "
        f"success would be {if_failed:.1%}"
    )


def _counts(words: Any) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))
