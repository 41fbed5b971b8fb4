"""Stored trajectories among fresh ones. Their ids say that they are replays, and of what.

A replay is the stored trajectory to the letter, sampled ids and log-probabilities of the policy
that sampled them included, under an id of its own. So a row of it can be told from one of a
trajectory that was trained on twice by accident.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentrl.core.strategy import REPLAY_MARK, Imitated, is_replay, original_id
from agentrl.core.task import Task
from agentrl.core.trajectory import CreditResult, Group, Trajectory

__all__ = [
    "Replay",
    "is_replay",
    "original_id",
    "replayed",
    "scaled",
    "with_imitated",
    "without_replays",
]


@dataclass(frozen=True, slots=True)
class Replay:
    """The record of one use of a stored trajectory.

    Attributes:
        trajectory_id: In the store. group_id: What it was learnt from with.
        policy_version: The oldest version that sampled any of it.
        advantage: If it did not get one by comparison with a group.
    """

    trajectory_id: str
    group_id: str
    policy_version: int
    advantage: float | None = None


def replayed(trajectory: Trajectory, group_id: str) -> Trajectory:
    """A stored trajectory as a member of another group."""
    return replace(
        trajectory, id=f"{original_id(trajectory.id)}{REPLAY_MARK}{group_id}", group_id=group_id
    )


def without_replays(
    groups: Sequence[Group], credit: CreditResult
) -> tuple[tuple[Group, ...], CreditResult]:
    """What was just played, with its part of the credit: the part that the store records."""
    flat = [one for group in groups for one in group.trajectories]
    kept = [position for position, one in enumerate(flat) if not is_replay(one.id)]
    if len(kept) == len(flat):
        return tuple(groups), credit
    fresh = tuple(
        replace(
            group,
            trajectories=tuple(one for one in group.trajectories if not is_replay(one.id)),
        )
        for group in groups
    )
    tokens = credit.token_advantages
    return fresh, replace(
        credit,
        step_advantages=[credit.step_advantages[one] for one in kept],
        token_advantages=None if tokens is None else [tokens[one] for one in kept],
        parts={name: [part[one] for one in kept] for name, part in credit.parts.items()},
        groups={name: [part[one] for one in kept] for name, part in credit.groups.items()},
    )


def scaled(credit: CreditResult, factor: float) -> CreditResult:
    """Advantages times a factor, for making rows; parts and partitions are left out."""
    if factor == 1.0:
        return credit
    steps = [one if one is None else [factor * x for x in one] for one in credit.step_advantages]
    tokens = credit.token_advantages
    if tokens is not None:
        tokens = [
            one if one is None else [[factor * x for x in step] for step in one] for one in tokens
        ]
    return CreditResult(steps, tokens)


def with_imitated(
    groups: Sequence[Group], credit: CreditResult, imitated: Sequence[Imitated], name: str
) -> tuple[tuple[Group, ...], CreditResult]:
    """Groups and credit with each imitated trajectory as a group of its own, for making rows.

    Args:
        groups: What credit was given. credit: What it made of them.
        imitated: Stored trajectories with their advantages.
        name: Their group ids begin with it.
    """
    if not imitated:
        return tuple(groups), credit
    added = []
    for number, one in enumerate(imitated):
        task = Task(one.trajectory.task_id, "", "")  # rows need no more of it
        group_id = f"{name}-again-{number}"
        added.append(Group(group_id, task, (replayed(one.trajectory, group_id),)))
    tokens = credit.token_advantages
    if tokens is not None:
        none = [[[0.0] * len(s.sample.token_ids) for s in one.trajectory.steps] for one in imitated]
        tokens = [*tokens, *none]
    advantages = [[one.advantage] * len(one.trajectory.steps) for one in imitated]
    return (*groups, *added), CreditResult([*credit.step_advantages, *advantages], tokens)
