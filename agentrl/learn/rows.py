"""Groups and their credit become training rows. Pure; knows nothing of tensors.

A row is a segment of a trajectory: token ids as the engine saw and sampled them, with a mask that
is 1 exactly on sampled tokens. Nothing is encoded again and nothing else is ever trained on.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Literal

from agentrl.core.errors import DataError
from agentrl.core.trajectory import Batch, CreditResult, Group, Row, Segment, Step, Trajectory
from agentrl.credit.annotations import annotations_of

__all__ = [
    "TEACHERS",
    "MaskedTokens",
    "TrajectoryWeighting",
    "batches_from_groups",
    "rows_from_demonstrations",
    "rows_from_groups",
    "split_into_updates",
]

TrajectoryWeighting = Literal["equal", "tokens"]
MaskedTokens = tuple[Sequence[int], Sequence[int]]
"""Token ids of a row, and 1 on those to learn."""
# Annotations with a teacher's log-probabilities, the first that a step has. A step that its own
# skill scored is not drawn towards that of the episode (OPID's critical-first routing).
TEACHERS = ("step_teacher_logprobs", "episode_teacher_logprobs")


def rows_from_groups(
    groups: Sequence[Group], credit: CreditResult, *, trajectory_weighting: TrajectoryWeighting
) -> tuple[Row, ...]:
    """Rows of every trajectory that takes part, weighted for one optimiser step.

    The advantage of a step is given to each of its sampled tokens; token advantages, if the
    estimator makes them, are added. Weights of trajectory i with n_i sampled tokens::

        equal:   w_i = N / (M * n_i)        tokens:   w_i = 1

    with N sampled tokens and M trajectories in all. The learner's loss is
    ``1/N * sum(w * token loss)``, which under ``equal`` is the mean over trajectories of the mean
    over their tokens: a long episode counts as much as a short one.

    A trajectory whose advantages are all exactly 0 adds no gradient but still counts in N and M;
    ``None`` (no part) counts nowhere. So the rows given here must reach the learner together; it
    skips the forward pass of rows without gradient itself.

    Steps that an annotator gave ``step_teacher_logprobs``, or else ``episode_teacher_logprobs``,
    bring them along as ``teacher_logprobs`` of the row, for a distillation term.

    Args:
        groups: Whole groups of one update.
        credit: Advantages aligned with the trajectories of ``groups`` in order.
        trajectory_weighting: ``equal`` or ``tokens``.

    Returns:
        Rows in the order of groups, trajectories, segments. A trajectory that sampled nothing has
        none.

    Raises:
        DataError: ``credit`` does not fit ``groups``, an advantage or log-probability is not
            finite, or a sampled token has no prompt before it.
    """
    taking_part = _taking_part(groups, credit)
    total_tokens = sum(one.sampled_tokens for _, one in taking_part)
    rows: list[Row] = []
    for position, trajectory in taking_part:
        weight = 1.0
        if trajectory_weighting == "equal":
            weight = total_tokens / (len(taking_part) * trajectory.sampled_tokens)
        advantages = _token_advantages(trajectory, credit, position)
        rows.extend(_trajectory_rows(trajectory, advantages, weight))
    masked = sum(sum(row.action_mask) for row in rows)
    if masked != total_tokens:
        raise AssertionError(f"rows train on {masked} tokens, {total_tokens} were sampled")
    return tuple(rows)


def split_into_updates(groups: Sequence[Group], updates: int) -> tuple[tuple[int, ...], ...]:
    """Positions of the groups of each update: whole groups, about equal tokens to compute.

    The largest group left goes to the update with the fewest tokens so far; ties go to the one
    with fewer groups, then to the first. Depends on nothing but the arguments.

    Returns:
        ``updates`` tuples of increasing positions in ``groups``, none empty.

    Raises:
        DataError: fewer groups than updates.
    """
    if not 1 <= updates <= len(groups):
        raise DataError(
            f"cannot make {updates} updates of {len(groups)} groups: a group is never split, so "
            "updates must be between 1 and the number of groups"
        )
    sizes = [sum(_computed_tokens(one) for one in group.trajectories) for group in groups]
    bins: list[tuple[int, int, int]] = [(0, 0, update) for update in range(updates)]
    chosen: list[list[int]] = [[] for _ in range(updates)]
    for position in sorted(range(len(groups)), key=lambda index: (-sizes[index], index)):
        tokens, count, update = heapq.heappop(bins)
        chosen[update].append(position)
        heapq.heappush(bins, (tokens + sizes[position], count + 1, update))
    return tuple(tuple(sorted(positions)) for positions in chosen)


def batches_from_groups(
    groups: Sequence[Group],
    credit: CreditResult,
    *,
    updates: int,
    trajectory_weighting: TrajectoryWeighting,
    batch_id: str = "",
) -> tuple[Batch, ...]:
    """The batches of one iteration, one optimiser step each.

    Groups of which no trajectory takes part are left out, so there may be fewer batches than
    ``updates``, down to none when everything failed. Arguments and errors as in
    ``rows_from_groups``; the ids are ``{batch_id}/{update}``.
    """
    starts, start = [], 0
    for group in groups:
        starts.append(start)
        start += len(group.trajectories)
    _check_length(start, credit)
    alive = [
        position
        for position, group in enumerate(groups)
        if any(
            credit.step_advantages[starts[position] + index] is not None and one.sampled_tokens
            for index, one in enumerate(group.trajectories)
        )
    ]
    if not alive:
        return ()
    batches = []
    split = split_into_updates([groups[position] for position in alive], min(updates, len(alive)))
    for update, chosen in enumerate(split):
        positions = [alive[index] for index in chosen]
        flat = [
            starts[position] + index
            for position in positions
            for index in range(len(groups[position].trajectories))
        ]
        tokens = credit.token_advantages
        part = CreditResult(
            step_advantages=[credit.step_advantages[index] for index in flat],
            token_advantages=None if tokens is None else [tokens[index] for index in flat],
        )
        rows = rows_from_groups(
            [groups[position] for position in positions],
            part,
            trajectory_weighting=trajectory_weighting,
        )
        batches.append(Batch(rows, f"{batch_id}/{update}"))
    return tuple(batches)


def rows_from_demonstrations(
    episodes: Sequence[Sequence[MaskedTokens]],
    *,
    trajectory_weighting: TrajectoryWeighting = "tokens",
) -> tuple[Row, ...]:
    """Rows that clone an expert: advantage 1 and no behaviour policy.

    Without a behaviour policy the ratio is 1 with the gradient of the log-probability, so the
    policy-gradient loss has exactly the gradient of the cross-entropy on the tokens with mask 1
    (its value is a constant, -1 for most losses; the learner reports the cross-entropy as ``nll``).

    Args:
        episodes: Of each episode its rows, pairs of token ids and mask of equal length; mask 1 on
            what to clone. A row without any is left out.
        trajectory_weighting: As in ``rows_from_groups``, an episode being a trajectory. ``equal``:
            the mean over episodes of their means, in however many rows they come.

    Raises:
        DataError: lengths differ, a mask is not 0 or 1, or the first token is to be cloned.
    """
    for number, episode in enumerate(episodes):
        for row in episode:
            _check_demonstration(f"demonstration {number}", *row)
    counts = [sum(sum(mask) for _, mask in episode) for episode in episodes]
    total, taking_part = sum(counts), sum(1 for count in counts if count)
    equal = trajectory_weighting == "equal"
    return tuple(
        Row(
            token_ids=tuple(token_ids),
            action_mask=tuple(mask),
            behaviour_logprobs=None,
            advantages=tuple(float(one) for one in mask),
            weight=total / (taking_part * count) if equal else 1.0,
            trajectory_id=f"demonstration/{number}",
            group_id="demonstrations",
            policy_version=0,
        )
        for number, (episode, count) in enumerate(zip(episodes, counts, strict=True))
        for token_ids, mask in episode
        if any(mask)
    )


def _check_demonstration(where: str, token_ids: Sequence[int], mask: Sequence[int]) -> None:
    if len(token_ids) != len(mask):
        raise DataError(f"{where} has {len(token_ids)} token ids but {len(mask)} mask entries")
    if any(one not in (0, 1) for one in mask):
        raise DataError(f"{where} has a mask entry that is neither 0 nor 1")
    if mask and mask[0]:
        raise DataError(f"{where} clones its first token, which nothing precedes")


def _check_length(trajectories: int, credit: CreditResult) -> None:
    for name, given in (
        ("step_advantages", credit.step_advantages),
        ("token_advantages", credit.token_advantages),
    ):
        if given is not None and len(given) != trajectories:
            raise DataError(
                f"credit.{name} has {len(given)} entries for {trajectories} trajectories; give one "
                "per trajectory, in the order of the groups (None for those that take no part)"
            )


def _taking_part(groups: Sequence[Group], credit: CreditResult) -> list[tuple[int, Trajectory]]:
    """Position in the credit and trajectory, for those with advantages and sampled tokens."""
    trajectories = [one for group in groups for one in group.trajectories]
    _check_length(len(trajectories), credit)
    return [
        (position, one)
        for position, one in enumerate(trajectories)
        if credit.step_advantages[position] is not None and one.sampled_tokens
    ]


def _token_advantages(
    trajectory: Trajectory, credit: CreditResult, position: int
) -> list[list[float]]:
    """Advantage of each sampled token, per step: the step's plus the token's own."""
    of_steps = credit.step_advantages[position] or ()
    if len(of_steps) != len(trajectory.steps):
        raise DataError(
            f"credit gives {len(of_steps)} advantages to trajectory {trajectory.id}, which has "
            f"{len(trajectory.steps)} steps; give one per step"
        )
    of_tokens = None if credit.token_advantages is None else credit.token_advantages[position]
    advantages = []
    for index, step in enumerate(trajectory.steps):
        count = len(step.sample.token_ids)
        own = [0.0] * count if of_tokens is None else of_tokens[index]
        if len(own) != count:
            raise DataError(
                f"credit gives {len(own)} token advantages to step {index} of trajectory "
                f"{trajectory.id}, which sampled {count} tokens"
            )
        values = [float(of_steps[index]) + float(one) for one in own]
        if not all(map(math.isfinite, values)) or not math.isfinite(of_steps[index]):
            raise DataError(
                f"the advantage of step {index} of trajectory {trajectory.id} is not finite; a "
                "trajectory that cannot be scored must get None instead"
            )
        advantages.append(values)
    return advantages


def _trajectory_rows(
    trajectory: Trajectory, advantages: Sequence[Sequence[float]], weight: float
) -> list[Row]:
    rows = []
    for segment in trajectory.segments():
        if any(end > start for start, end in segment.spans):
            rows.append(_row(trajectory, segment, advantages, weight))
    return rows


def _row(
    trajectory: Trajectory,
    segment: Segment,
    advantages: Sequence[Sequence[float]],
    weight: float,
) -> Row:
    length = len(segment.token_ids)
    mask, logprobs, values = [0] * length, [0.0] * length, [0.0] * length
    teacher: list[float | None] = [None] * length
    for index, (start, end) in zip(segment.steps, segment.spans, strict=True):
        sample = trajectory.steps[index].sample
        where = f"step {index} of trajectory {trajectory.id}"
        if start == 0 and end > 0:
            raise DataError(f"{where} has an empty prompt: its first token has no probability")
        if len(sample.logprobs) != end - start:
            raise DataError(
                f"{where} has {end - start} sampled tokens but {len(sample.logprobs)} logprobs"
            )
        if not all(map(math.isfinite, sample.logprobs)):
            raise DataError(f"{where} has a log-probability that is not finite; check the engine")
        mask[start:end] = [1] * (end - start)
        logprobs[start:end] = sample.logprobs
        values[start:end] = advantages[index]
        teacher[start:end] = _taught(trajectory.steps[index], where)
    return Row(
        token_ids=segment.token_ids,
        action_mask=tuple(mask),
        behaviour_logprobs=tuple(logprobs),
        advantages=tuple(values),
        weight=weight,
        trajectory_id=trajectory.id,
        group_id=trajectory.group_id,
        policy_version=min(trajectory.steps[one].sample.policy_version for one in segment.steps),
        teacher_logprobs=None if all(one is None for one in teacher) else tuple(teacher),
    )


def _taught(step: Step, where: str) -> Sequence[float | None]:
    """What a teacher gave to each sampled token of a step; ``None`` where there was none."""
    count, given = len(step.sample.token_ids), annotations_of(step)
    for name in TEACHERS:
        values = given.get(name)
        if values is None:
            continue
        if len(values) != count:
            raise DataError(
                f"{where} sampled {count} tokens but has {len(values)} values of '{name}'; score "
                "exactly the sampled tokens"
            )
        if not all(map(math.isfinite, values)):
            raise DataError(f"{where} has a value of '{name}' that is not finite")
        return tuple(float(one) for one in values)
    return (None,) * count


def _computed_tokens(trajectory: Trajectory) -> int:
    return sum(len(segment.token_ids) for segment in trajectory.segments())
