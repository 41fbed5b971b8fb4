"""What the rewards of a group say."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.core.trajectory import Group

__all__ = ["has_signal", "is_equal", "normalised_variance", "scores", "solved_share"]

_TOLERANCE = 1e-6


def scores(group: Group) -> list[float]:
    """Rewards of the trajectories that take part in credit."""
    rewards = [one.reward for one in group.trajectories]
    return [one for one in rewards if one is not None]


def is_equal(values: Sequence[float]) -> bool:
    """Whether values are equal as credit sees it: a range of at most 1e-6 * max(1, |mean|)."""
    if not values:
        return True
    mean = sum(values) / len(values)
    return max(values) - min(values) <= _TOLERANCE * max(1.0, abs(mean))


def has_signal(group: Group) -> bool:
    """Whether two or more rewards are there to compare, and they differ."""
    return not is_equal(scores(group))


def normalised_variance(values: Sequence[float]) -> float:
    """The sample variance over the largest that so many values of this range could have.

    Computes, for n values in [low, high] and h = n // 2::

        p = var / max,    max = (high - low)^2 h (n - h) / (n (n - 1))

    With rewards 0 and 1 and k ones: p = k (n - k) / (h (n - h)), 1 when half of them succeed.

    Source: VCRL (arXiv 2509.19803) as our specification gives it, for rewards 0 and 1; dividing by
    the range, so that a task that pays 10 counts like one that pays 1, is ours.

    Args:
        values: Rewards of a group.

    Returns:
        In [0, 1]; 0 for equal values, and for fewer than two.
    """
    if is_equal(values):
        return 0.0
    n, mean = len(values), sum(values) / len(values)
    half, width = n // 2, max(values) - min(values)
    most = width**2 * half * (n - half) / n
    return min(sum((one - mean) ** 2 for one in values) / most, 1.0)


def solved_share(group: Group) -> float | None:
    """Share of the finished episodes that succeeded; ``None`` if no outcome is known."""
    known = [one.success for one in group.trajectories if one.success is not None]
    return sum(known) / len(known) if known else None
