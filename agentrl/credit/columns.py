"""Groups of trajectories as columns, and columns of credit back as a CreditResult.

The only place where credit touches the records of play. It decides who takes part: trajectories
that are ``scored``, all their steps, of which only steps of kind ``act`` are rewarded and compared.
It refuses data that would be averaged wrongly: the same trajectory or group twice, a step index
twice, a reward that is not finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np

from agentrl.core.errors import DataError
from agentrl.core.trajectory import CreditResult, Group, Step, Trajectory
from agentrl.credit.functional.checks import Array, Flags, Labels

__all__ = ["Columns", "columns_of", "credit_result"]


@dataclass(frozen=True, slots=True)
class Columns:
    """One entry per step of the M steps of all trajectories that take part.

    Attributes:
        group: Number of the task group, shape (M,).
        trajectory: Number of the trajectory among those that take part, shape (M,).
        index: Time of the step in its trajectory, shape (M,). Never implied by the order.
        act: Whether the step is an act of the policy on the environment, shape (M,).
        reward: Reward of the step, 0 where it is no act, shape (M,).
        valid: Whether the action was valid, true where it is no act, shape (M,).
        anchor: Key of the state the action was taken in, ``None`` where there is none.
        action_key: Normalised action.
        steps: The records themselves, for estimators that need more of them.
        lengths: Steps of each trajectory of the groups in order, ``None`` for one that takes no
            part.
        failed: How many of those without part had an infra failure; the others were unscored.
        groups: How many groups there were, those without any trajectory that takes part included.
    """

    group: Labels
    trajectory: Labels
    index: Labels
    act: Flags
    reward: Array
    valid: Flags
    anchor: tuple[Any, ...]
    action_key: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    lengths: tuple[int | None, ...] = ()
    failed: int = 0
    groups: int = 0

    @property
    def rows(self) -> Labels:
        """Positions of the acts, shape (n,)."""
        return np.flatnonzero(self.act).astype(np.int64)

    @property
    def alone(self) -> Flags:
        """Whether a step's group has no other trajectory that takes part, shape (M,)."""
        first = np.unique(self.trajectory, return_index=True)[1]
        size = np.bincount(self.group[first], minlength=self.groups)
        return np.asarray(size[self.group] == 1, dtype=np.bool_)

    def on_steps(self, values: Array) -> Array:
        """Values of the acts, shape (n,), spread over all steps, shape (M,); 0 elsewhere."""
        spread = np.zeros(len(self.act))
        spread[self.act] = values
        return spread

    def labels_on_steps(self, labels: Labels) -> Labels:
        """Labels of the acts, shape (n,), spread over all steps, shape (M,); -1 elsewhere."""
        spread = np.full(len(self.act), -1, dtype=np.int64)
        spread[self.act] = labels
        return spread


def columns_of(groups: Sequence[Group]) -> Columns:
    """The columns of ``groups``.

    Raises:
        DataError: a trajectory or group id appears twice; a step index appears twice; the reward of
            a scored trajectory is not a finite number.
    """
    _refuse_twice("group", [group.id for group in groups])
    _refuse_twice("trajectory", [one.id for group in groups for one in group.trajectories])
    taking_part: list[tuple[int, Trajectory]] = []
    lengths: list[int | None] = []
    failed = 0
    for number, group in enumerate(groups):
        for one in group.trajectories:
            lengths.append(len(one.steps) if one.scored else None)
            failed += one.failure is not None
            if one.scored:
                taking_part.append((number, one))
    sizes = [len(one.steps) for _, one in taking_part]
    steps = tuple(chain.from_iterable(one.steps for _, one in taking_part))
    columns = Columns(
        group=np.repeat(np.array([g for g, _ in taking_part], dtype=np.int64), sizes),
        trajectory=np.repeat(np.arange(len(sizes), dtype=np.int64), sizes),
        index=np.array([step.index for step in steps], dtype=np.int64),
        act=np.array([step.kind == "act" for step in steps], dtype=np.bool_),
        reward=_rewards(steps),
        valid=np.array(
            [step.result is None or bool(step.result.action_valid) for step in steps],
            dtype=np.bool_,
        ),
        anchor=tuple(step.anchor for step in steps),
        action_key=tuple(step.action_key for step in steps),
        steps=steps,
        lengths=tuple(lengths),
        failed=failed,
        groups=len(groups),
    )
    _check(columns, [one for _, one in taking_part])
    return columns


def credit_result(
    columns: Columns,
    parts: Mapping[str, Array],
    partitions: Mapping[str, Labels] | None = None,
    metrics: Mapping[str, float] | None = None,
    tokens: Sequence[Sequence[float]] | None = None,
) -> CreditResult:
    """Sum ``parts`` and give every column back the shape of the groups.

    Args:
        columns: What ``columns_of`` made of the groups.
        parts: Contributions to the advantage by name, each of shape (M,); they add up to it.
        partitions: Labels by name, each of shape (M,).
        metrics: More numbers for reports, beside the common ones.
        tokens: For each of the M steps one value per sampled token, added below the step.

    Raises:
        DataError: a part is not finite (an estimator's bug, better seen here than in the loss).
    """
    partitions = partitions or {}
    total = np.zeros(len(columns.act))
    for name, part in parts.items():
        if part.shape != total.shape or not np.isfinite(part).all():
            raise DataError(f"part '{name}' must be finite with shape {total.shape}")
        total = total + part
    return CreditResult(
        step_advantages=_split(columns, total.tolist()),
        token_advantages=None if tokens is None else _split(columns, list(tokens)),
        parts={name: _split(columns, part.tolist()) for name, part in parts.items()},
        groups={name: _split(columns, one.tolist()) for name, one in partitions.items()},
        metrics={**_common_metrics(columns, total, parts, partitions), **(metrics or {})},
    )


def _split(columns: Columns, values: list[Any]) -> tuple[Any, ...]:
    ends = np.cumsum([0, *(length or 0 for length in columns.lengths)]).tolist()
    return tuple(
        None if length is None else tuple(values[start:end])
        for length, (start, end) in zip(columns.lengths, pairwise(ends), strict=True)
    )


def _rewards(steps: Sequence[Step]) -> Array:
    try:
        return np.array([step.reward for step in steps], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"a reward is not a number: {error}") from None


def _refuse_twice(what: str, ids: Sequence[str]) -> None:
    if len(set(ids)) != len(ids):
        twice = next(one for position, one in enumerate(ids) if one in ids[:position])
        raise DataError(
            f"{what} '{twice}' is given twice; it would count twice in every mean. "
            "Give each once, and never pad a batch before credit"
        )


def _check(columns: Columns, trajectories: Sequence[Trajectory]) -> None:
    def name(position: int) -> str:
        one = trajectories[columns.trajectory[position]]
        return f"trajectory '{one.id}', step {columns.index[position]}"

    wrong = np.flatnonzero(~np.isfinite(columns.reward))
    if wrong.size:
        raise DataError(
            f"the reward of {name(int(wrong[0]))} is {columns.reward[wrong[0]]}, expected a finite "
            "number; record it as an environment failure or as None (unscored), never as 0"
        )
    order = np.lexsort((columns.index, columns.trajectory))
    index, trajectory = columns.index[order], columns.trajectory[order]
    twice = np.flatnonzero((index[1:] == index[:-1]) & (trajectory[1:] == trajectory[:-1]))
    if twice.size:
        raise DataError(f"{name(int(order[twice[0]]))} appears twice; a step must appear once")


def _common_metrics(
    columns: Columns, total: Array, parts: Mapping[str, Array], partitions: Mapping[str, Labels]
) -> dict[str, float]:
    taking_part = sum(length is not None for length in columns.lengths)
    first = np.unique(columns.trajectory, return_index=True)[1]
    sizes = np.bincount(columns.group[first], minlength=columns.groups)
    metrics: dict[str, float] = {
        "groups": columns.groups,
        "groups_empty": int((sizes == 0).sum()),
        "groups_of_one": int((sizes == 1).sum()),
        "trajectories": taking_part,
        "trajectories_failed": columns.failed,
        "trajectories_unscored": len(columns.lengths) - taking_part - columns.failed,
        "steps": len(total),
        "zero_advantage_share": _mean(total == 0.0),
        "valid_action_share": _mean(columns.valid[columns.act]),
    }
    size = {name: _mean(np.abs(part)) for name, part in parts.items()}
    for name in parts:
        metrics[f"{name}_abs_mean"] = size[name]
        metrics[f"{name}_share"] = size[name] / sum(size.values()) if any(size.values()) else 0.0
    for name, labels in partitions.items():
        metrics.update(_partition_metrics(name, labels[columns.act]))
    return metrics


def _partition_metrics(name: str, labels: Labels) -> dict[str, float]:
    """How many clusters, and which share of the acts lies in clusters of which size."""
    found, place = np.unique(labels[labels >= 0], return_inverse=True)
    size = np.ones(len(labels), dtype=np.int64)
    size[labels >= 0] = np.bincount(place, minlength=len(found))[place]
    return {
        f"{name}_clusters": len(found),
        f"{name}_size_1_share": _mean(size == 1),
        f"{name}_size_2_to_4_share": _mean((size >= 2) & (size <= 4)),
        f"{name}_size_5_to_16_share": _mean((size >= 5) & (size <= 16)),
        f"{name}_size_over_16_share": _mean(size > 16),
    }


def _mean(values: Array | Flags) -> float:
    return float(values.mean()) if len(values) else 0.0
