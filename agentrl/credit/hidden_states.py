"""The annotator of BiPACE: hidden states of the policy at the end of each step's prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from agentrl.core.errors import DataError
from agentrl.core.protocols import Learner
from agentrl.core.trajectory import Group, Row, Segment, Step, Trajectory
from agentrl.credit.annotations import annotate

__all__ = ["HiddenStates"]


@dataclass(frozen=True, slots=True)
class HiddenStates:
    """Annotates every step of the trajectories that take part with ``hidden``.

    One scoring pass over the segments of the groups, without gradient. The state is that of the
    last prompt token: the one the first sampled token was drawn from.

    Attributes:
        learner: Scores the rows with its current weights.
        layer: Hidden layer, as ``Learner.score`` counts (published for BiPACE: -8 of a 7B model,
            -12 of 1.5B).
    """

    learner: Learner
    layer: int = -1
    gives: ClassVar[tuple[str, ...]] = ("hidden",)

    def annotate(self, groups: Sequence[Group]) -> Sequence[Group]:
        """The groups with ``hidden`` on their steps.

        Raises:
            DataError: the learner gave no hidden states.
        """
        segments = [
            (trajectory, segment)
            for group in groups
            for trajectory in group.trajectories
            if trajectory.scored
            for segment in trajectory.segments()
        ]
        if not segments:
            return groups
        rows = [_row(trajectory, segment) for trajectory, segment in segments]
        hidden = self.learner.score(rows, hidden_layer=self.layer).hidden
        if hidden is None:
            raise DataError(
                f"the learner {type(self.learner).__name__} gave no hidden states for layer "
                f"{self.layer}; Learner.score(rows, hidden_layer=...) must return them"
            )
        found: dict[tuple[str, int], tuple[float, ...]] = {}
        for (trajectory, segment), states in zip(segments, hidden, strict=True):
            for position, (start, _) in zip(segment.steps, segment.spans, strict=True):
                state = states[min(start, len(segment.token_ids) - 1)]
                found[trajectory.id, position] = tuple(np.asarray(state, np.float64).tolist())
        return [
            replace(group, trajectories=tuple(_annotated(t, found) for t in group.trajectories))
            for group in groups
        ]


def _row(trajectory: Trajectory, segment: Segment) -> Row:
    count = len(segment.token_ids)
    mask = [0] * count
    for start, end in segment.spans:
        mask[start:end] = [1] * (end - start)
    return Row(
        token_ids=segment.token_ids,
        action_mask=tuple(mask),
        behaviour_logprobs=None,
        advantages=(0.0,) * count,
        weight=1.0,
        trajectory_id=trajectory.id,
        group_id=trajectory.group_id,
        policy_version=trajectory.policy_version,
    )


def _annotated(
    trajectory: Trajectory, found: dict[tuple[str, int], tuple[float, ...]]
) -> Trajectory:
    if (trajectory.id, 0) not in found:
        return trajectory
    steps: list[Step] = [
        annotate(step, hidden=found[trajectory.id, position])
        for position, step in enumerate(trajectory.steps)
    ]
    return replace(trajectory, steps=tuple(steps))
