"""Groups of trajectories as columns, and columns of credit back as a CreditResult.

The only place where credit touches the records of play. It decides who takes part: trajectories
that are ``scored``, all their steps, of which only steps of kind ``act`` are rewarded and compared.
It refuses data that would be averaged wrongly: the same trajectory or group twice, a trajectory of
another task, one that ended without having begun, a step index twice, a step of an unknown kind, a
reward that is not finite.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice
from typing import Any, get_args, overload

import numpy as np

from agentrl.core.errors import DataError, nearest
from agentrl.core.trajectory import (
    CreditResult,
    Group,
    Step,
    StepKind,
    StopReason,
    Trajectory,
)
from agentrl.credit.diagnostics import measures, token_sizes
from agentrl.credit.functional import Array, Flags, Labels

__all__ = ["Columns", "columns_of", "credit_result"]

KINDS: tuple[str, ...] = get_args(StepKind)


class _Steps(Sequence[Step]):
    """The steps of several trajectories, one after another; nothing is copied.

    A tuple of a hundred thousand records would cost more than what an estimator computes: it is
    made, looked through by the garbage collector and taken apart at the pace of memory.
    """

    def __init__(self, trajectories: Sequence[Trajectory]) -> None:
        self._parts = tuple(trajectories)
        self._starts = tuple(accumulate((len(one.steps) for one in trajectories), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[Step]:
        return chain.from_iterable(one.steps for one in self._parts)

    @overload
    def __getitem__(self, position: int) -> Step: ...

    @overload
    def __getitem__(self, position: slice) -> tuple[Step, ...]: ...

    def __getitem__(self, position: int | slice) -> Step | tuple[Step, ...]:
        if isinstance(position, slice):
            return tuple([self[row] for row in range(*position.indices(len(self)))])
        row = range(len(self))[position]  # a negative one counts from the end
        part = bisect_right(self._starts, row) - 1
        return self._parts[part].steps[row - self._starts[part]]


@dataclass(frozen=True, slots=True)
class Columns:
    """One entry per step of the M steps of all trajectories that take part.

    Attributes:
        group: Number of the task group, shape (M,).
        trajectory: Number of the trajectory among those that take part, in the order of groups and
            trials, shape (M,). Shuffling the records of a group does not change it.
        index: Time of the step in its trajectory, shape (M,). Never implied by the order.
        act: Whether the step is an act of the policy on the environment, shape (M,).
        reward: Reward of the step, 0 where it is no act, shape (M,).
        valid: Whether the action was valid, true where it is no act, shape (M,).
        steps: The records themselves: anchors, actions and what else an estimator needs, as a
            sequence of length M: quick to go through; before picking many by position make a
            tuple of it.
        trajectories: Their records, by number of the trajectory.
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
    steps: Sequence[Step]
    trajectories: tuple[Trajectory, ...] = ()
    lengths: tuple[int | None, ...] = ()
    failed: int = 0
    groups: int = 0

    @property
    def rows(self) -> Labels:
        """Positions of the acts, shape (n,)."""
        return np.flatnonzero(self.act).astype(np.int64)

    @property
    def first(self) -> Labels:
        """Position of the first record of each trajectory, by number; shape (trajectories,)."""
        count = int(self.trajectory.max()) + 1 if len(self.trajectory) else 0
        first = np.zeros(count, dtype=np.int64)
        first[self.trajectory[::-1]] = np.arange(len(self.trajectory), dtype=np.int64)[::-1]
        return first

    @property
    def alone(self) -> Flags:
        """Whether a step's group has no other trajectory that takes part, shape (M,)."""
        size = np.bincount(self.group[self.first], minlength=self.groups)
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

    def where(self, position: int) -> str:
        """Names the step at ``position`` for a message."""
        number = int(self.trajectory[position])
        if not self.trajectories:
            return f"trajectory {number}, step {self.index[position]}"
        one = self.trajectories[number]
        return f"group '{one.group_id}', trajectory '{one.id}', step {self.index[position]}"


def columns_of(groups: Sequence[Group]) -> Columns:
    """The columns of ``groups``.

    Raises:
        DataError: a trajectory or group id appears twice; a trajectory is of another task than its
            group, or was ended by its task without a step; a step index appears twice; a step is of
            an unknown kind; the reward of a scored trajectory is not a finite number. It names
            group, trajectory and step.
    """
    _refuse_twice(groups)
    records = _Records()
    for number, group in enumerate(groups):
        for one in group.trajectories:
            _require_member(group, one)
            records.add(number, one)
    played = records.played
    owner = np.array(records.group, dtype=np.int64)
    trial = np.array([one.trial for one in played], dtype=np.int64)
    attempt = np.array([one.attempt for one in played], dtype=np.int64)
    order = np.lexsort((attempt, trial, owner))
    numbers = np.empty(len(played), dtype=np.int64)
    numbers[order] = np.arange(len(played), dtype=np.int64)
    sizes = [len(one.steps) for one in played]
    columns = Columns(
        group=np.repeat(owner, sizes),
        trajectory=np.repeat(numbers, sizes),
        index=np.array(records.index, dtype=np.int64),
        act=np.array(records.act, dtype=np.bool_),
        reward=np.zeros(len(records.index)),
        valid=np.array(records.valid, dtype=np.bool_),
        steps=_Steps(played),
        trajectories=tuple([played[k] for k in order.tolist()]),
        lengths=tuple(records.lengths),
        failed=records.failed,
        groups=len(groups),
    )
    _refuse_repeated_steps(columns)
    _require_kinds(columns)
    return replace(columns, reward=_finite(columns, records.rewards))


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
    advantages = _split(columns, total.tolist())
    only = len(parts) == 1  # then it is the advantage
    return CreditResult(
        step_advantages=advantages,
        token_advantages=None if tokens is None else _split(columns, tokens),
        parts={
            name: advantages if only else _split(columns, part.tolist())
            for name, part in parts.items()
        },
        groups={name: _split(columns, one.tolist()) for name, one in partitions.items()},
        metrics={
            **_common_metrics(columns),
            **measures(
                total,
                parts,
                partitions,
                columns.act,
                None if tokens is None else token_sizes([tokens]),
            ),
            **(metrics or {}),
        },
    )


def _split(columns: Columns, values: Sequence[Any]) -> tuple[Any, ...]:
    following = iter(values)
    return tuple(
        None if length is None else tuple(islice(following, length)) for length in columns.lengths
    )


class _Records:
    """What the trajectories that take part hold, one list per column.

    A trajectory is read at once, step by step: a batch is far larger than the processor's cache, so
    a pass over it per column would cost several times as much.
    """

    def __init__(self) -> None:
        self.lengths: list[int | None] = []
        self.failed = 0
        self.group: list[int] = []
        self.played: list[Trajectory] = []
        self.index: list[int] = []
        self.act: list[bool] = []
        self.rewards: list[Any] = []
        self.valid: list[bool] = []

    def add(self, group: int, one: Trajectory) -> None:
        """Read ``one`` if it takes part, count it if not."""
        if not one.scored:
            self.lengths.append(None)
            self.failed += one.failure is not None
            return
        self.lengths.append(len(one.steps))
        self.group.append(group)
        self.played.append(one)
        index, act, rewards, valid = self.index, self.act, self.rewards, self.valid
        for step in one.steps:
            result = step.result
            index.append(step.index)
            act.append(step.kind == "act")
            rewards.append(0.0 if result is None else result.reward)
            valid.append(result is None or result.action_valid)


def _refuse_twice(groups: Sequence[Group]) -> None:
    given = [one for group in groups for one in group.trajectories]
    if len({group.id for group in groups}) < len(groups):
        twice = _first_again([group.id for group in groups])
        what = f"group '{groups[twice].id}' is given twice"
    elif len({one.id for one in given}) < len(given):
        one = given[_first_again([one.id for one in given])]
        what = f"group '{one.group_id}', trajectory '{one.id}', {_steps(one)}: given twice"
    else:
        return
    raise DataError(
        f"{what}; it would count twice in every mean. Give each once, and never pad a batch "
        "before credit"
    )


def _first_again(ids: Sequence[str]) -> int:
    """Position of the first id that occurred before."""
    seen: set[str] = set()
    for position, one in enumerate(ids):
        if one in seen:
            return position
        seen.add(one)
    return -1


def _steps(one: Trajectory) -> str:
    """The steps of a trajectory for a message."""
    if not one.steps:
        return "without any step"
    first, last = one.steps[0].index, one.steps[-1].index
    return f"step {first}" if first == last else f"steps {first} to {last}"


def _require_member(group: Group, one: Trajectory) -> None:
    if one.task_id != group.task.id:
        raise DataError(
            f"group '{group.id}' of task '{group.task.id}' holds trajectory '{one.id}', "
            f"{_steps(one)}, of task '{one.task_id}'; a group holds the episodes of one task, "
            "because only they can be compared"
        )
    if not one.steps and one.failure is None and one.stop_reason is StopReason.TERMINATED:
        raise DataError(
            f"group '{group.id}', trajectory '{one.id}' has no steps, but its task ended it; "
            "expected at least step 0, or a stop reason that says which budget or failure came "
            "before it"
        )


def _require_kinds(columns: Columns) -> None:
    for row in np.flatnonzero(~columns.act).tolist():
        kind = columns.steps[row].kind
        if kind not in KINDS:
            raise DataError(
                f"{columns.where(row)} has the kind {kind!r}{nearest(str(kind), KINDS)} Expected "
                f"{', '.join(KINDS)}; a step of an unknown kind would be compared with nothing"
            )


def _refuse_repeated_steps(columns: Columns) -> None:
    index, trajectory = columns.index, columns.trajectory
    if ((index[1:] > index[:-1]) | (trajectory[1:] != trajectory[:-1])).all():
        return  # every trajectory's records lie together and in time, as they nearly always do
    order = np.lexsort((index, trajectory))
    index, trajectory = index[order], trajectory[order]
    twice = np.flatnonzero((index[1:] == index[:-1]) & (trajectory[1:] == trajectory[:-1]))
    if twice.size:
        raise DataError(
            f"{columns.where(int(order[twice[0]]))} appears twice; a step must appear once"
        )


def _finite(columns: Columns, rewards: Sequence[Any]) -> Array:
    """The rewards as numbers, shape (M,)."""
    found = _numbers(rewards)
    wrong = np.flatnonzero(~np.isfinite(found))
    if wrong.size:
        raise DataError(
            f"the reward of {columns.where(int(wrong[0]))} is {rewards[wrong[0]]!r}, expected a "
            "finite number; record it as an environment failure or as None (unscored), never as 0"
        )
    return found


def _numbers(values: Sequence[Any]) -> Array:
    """``values`` as floats, NaN for what is no number."""
    try:
        found = np.array(values)
    except ValueError:  # some are sequences
        found = np.zeros(0, dtype=np.object_)
    if found.dtype.kind in "biuf" and found.ndim == 1:
        return found.astype(np.float64)
    return np.array([x if isinstance(x, int | float | np.number) else np.nan for x in values])


def _common_metrics(columns: Columns) -> dict[str, float]:
    taking_part = sum(length is not None for length in columns.lengths)
    sizes = np.bincount(columns.group[columns.first], minlength=columns.groups)
    valid = columns.valid[columns.act]
    return {
        "groups": columns.groups,
        "groups_empty": int((sizes == 0).sum()),
        "groups_of_one": int((sizes == 1).sum()),
        "trajectories": taking_part,
        "trajectories_failed": columns.failed,
        "trajectories_unscored": len(columns.lengths) - taking_part - columns.failed,
        "valid_action_share": float(valid.mean()) if len(valid) else 0.0,
    }
