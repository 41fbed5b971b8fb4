"""The episode part: a trajectory's score against its group. Shared by most estimators."""

from __future__ import annotations

import numpy as np

from agentrl.credit.columns import Columns
from agentrl.credit.functional import (
    EQUAL_TOLERANCE,
    Array,
    episode_scores,
    equal_groups,
    invalid_action_penalty,
    normalise,
    trajectory_weights,
)
from agentrl.credit.options import Entries, EpisodeOptions, entries_of, singleton_of

__all__ = [
    "entry_weights",
    "episode_part",
    "equal_group_metrics",
    "penalised_scores",
]


def entry_weights(columns: Columns, entries: Entries, *, reference: bool = False) -> Array:
    """Weights of the steps in the statistics of their group, shape (M,).

    ``rows``: every step is an entry, so long trajectories weigh more. ``trajectories``: every
    trajectory is one entry, its steps share it; in reference mode the first step of a trajectory
    stands for it alone, as in the published code.
    """
    if entries == "rows":
        return np.ones(len(columns.trajectory))
    if not reference:
        return trajectory_weights(columns.trajectory)
    weights = np.zeros(len(columns.trajectory))
    weights[columns.first] = 1.0
    return weights


def penalised_scores(columns: Columns, coefficient: float) -> Array:
    """``E' = E - penalty of the step itself``: score of a step's trajectory, shape (M,).

    Args:
        columns: The steps.
        coefficient: Penalty of an invalid action, >= 0.
    """
    scores = episode_scores(columns.reward, columns.trajectory)
    return scores - invalid_action_penalty(columns.valid, coefficient)


def episode_part(columns: Columns, options: EpisodeOptions, scores: Array | None = None) -> Array:
    """Score of each step's trajectory relative to its group, shape (M,).

    ::

        A_E = normalise(E'; the trajectories of the group)      E' as in penalised_scores

    Without penalties all steps of a trajectory share one value. With them, the steps of a
    trajectory share its one entry, so the mean over trajectories of their mean A_E stays 0. Steps
    that are no act (summaries, skills) get the value without penalty.

    Sources: GRPO (arXiv 2402.03300), GiGPO, Eq. 3 (arXiv 2505.10978).

    Args:
        columns: The steps.
        options: The estimator whose options these are. In reference mode there is no rule for equal
            groups, and a trajectory's first step stands for it.
        scores: Replaces E', shape (M,).
    """
    if scores is None:
        scores = penalised_scores(columns, options.invalid_action_penalty)
    return normalise(
        scores,
        columns.group,
        normaliser=options.normaliser,
        ddof=1,
        epsilon=options.epsilon,
        singleton=singleton_of(options),
        weights=entry_weights(columns, entries_of(options), reference=options.reference),
        tolerance=None if options.reference else EQUAL_TOLERANCE,
    )


def equal_group_metrics(columns: Columns) -> dict[str, float]:
    """How many groups of two and more trajectories had equal scores: nothing to learn there."""
    first = columns.first
    scores, group = episode_scores(columns.reward, columns.trajectory)[first], columns.group[first]
    several = np.bincount(group, minlength=columns.groups) > 1
    equal = group[equal_groups(scores, group)]
    return {"groups_equal": float(several[np.unique(equal)].sum())}
