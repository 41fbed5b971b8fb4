"""The episode part: a trajectory's score against its group. Shared by most estimators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from agentrl.core.errors import ConfigError
from agentrl.credit.columns import Columns
from agentrl.credit.functional import (
    EQUAL_TOLERANCE,
    Array,
    Normaliser,
    Singleton,
    episode_scores,
    equal_groups,
    invalid_action_penalty,
    normalise,
    trajectory_weights,
)

__all__ = [
    "Entries",
    "check_options",
    "check_words",
    "entry_weights",
    "episode_part",
    "equal_group_metrics",
    "penalised_scores",
]

Entries = Literal["trajectories", "rows"]


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
    weights[np.unique(columns.trajectory, return_index=True)[1]] = 1.0
    return weights


def penalised_scores(columns: Columns, coefficient: float) -> Array:
    """``E' = E - penalty of the step itself``: score of a step's trajectory, shape (M,).

    Args:
        columns: The steps.
        coefficient: Penalty of an invalid action, >= 0.
    """
    scores = episode_scores(columns.reward, columns.trajectory)
    return scores - invalid_action_penalty(columns.valid, coefficient)


def episode_part(
    columns: Columns,
    *,
    normaliser: Normaliser,
    scores: Array,
    entries: Entries = "trajectories",
    singleton: Singleton = "zero",
    epsilon: float = 1e-6,
    reference: bool = False,
) -> Array:
    """Score of each step's trajectory relative to its group, shape (M,).

    ::

        A_E = normalise(E'; the trajectories of the group)      E' as in penalised_scores

    Without penalties all steps of a trajectory share one value. With them, the steps of a
    trajectory share its one entry, so the mean over trajectories of their mean A_E stays 0. Steps
    that are no act (summaries, skills) get the value without penalty.

    Sources: GRPO (arXiv 2402.03300), GiGPO, Eq. 3 (arXiv 2505.10978).

    Args:
        columns: The steps.
        normaliser: ``mean`` or ``mean_std``.
        scores: E' of each step, shape (M,).
        entries: What one entry of the statistics is.
        singleton: What a group of one trajectory gets.
        epsilon: Added to the standard deviation.
        reference: Behave as the published code: no rule for equal groups, a trajectory's first
            step stands for it.
    """
    return normalise(
        scores,
        columns.group,
        normaliser=normaliser,
        ddof=1,
        epsilon=epsilon,
        singleton=singleton,
        weights=entry_weights(columns, entries, reference=reference),
        tolerance=None if reference else EQUAL_TOLERANCE,
    )


def equal_group_metrics(columns: Columns) -> dict[str, float]:
    """How many groups of two and more trajectories had equal scores: nothing to learn there."""
    scores = episode_scores(columns.reward, columns.trajectory)
    equal = equal_groups(scores, columns.group)
    first = np.unique(columns.trajectory, return_index=True)[1]
    groups, size = np.unique(columns.group[first], return_counts=True)
    several = np.isin(columns.group, groups[size > 1])
    return {"groups_equal": float(len(np.unique(columns.group[equal & several])))}


def check_options(name: str, **options: tuple[float, float, float]) -> None:
    """Refuse numbers outside their range: ``option=(value, low, high)``.

    Raises:
        ConfigError: naming the estimator, the option, what was got and what is allowed.
    """
    for option, (value, low, high) in options.items():
        if not low <= value <= high:
            raise ConfigError(f"{name}: {option} must be in [{low:g}, {high:g}], got {value}")


def check_words(
    name: str,
    *,
    normaliser: str = "mean",
    entries: str | None = None,
    singleton: str | None = None,
    **others: tuple[str, Sequence[str]],
) -> None:
    """Refuse unknown words: of the options most estimators share, and ``option=(word, allowed)``.

    Raises:
        ConfigError: naming the estimator, the option, what was got and what is allowed.
    """
    shared = {
        "normaliser": (normaliser, ("mean", "mean_std")),
        "entries": (entries or "rows", ("trajectories", "rows")),
        "singleton": (singleton or "zero", ("zero", "raw")),
    }
    for option, (word, allowed) in {**shared, **others}.items():
        if word not in allowed:
            raise ConfigError(f"{name}: {option} must be one of {', '.join(allowed)}; got {word!r}")
