"""Baselines and normalisers: values compared with the mean and the spread of their group."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from agentrl.core.errors import DataError
from agentrl.credit.functional.checks import Array, Flags, Labels, floats, integers
from agentrl.credit.functional.labels import dense

__all__ = [
    "EQUAL_TOLERANCE",
    "Normaliser",
    "Singleton",
    "deviations",
    "equal_groups",
    "leave_one_out",
    "normalise",
    "top_margin",
    "trajectory_weights",
    "whiten",
]

Normaliser = Literal["mean", "mean_std"]
Singleton = Literal["zero", "raw"]

EQUAL_TOLERANCE = 1e-6
"""A group whose range is at most this times max(1, |mean|) is equal: its advantages are 0."""


def normalise(
    values: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    normaliser: Normaliser = "mean",
    ddof: int = 1,
    epsilon: float = 1e-6,
    singleton: Singleton = "zero",
    weights: npt.ArrayLike | None = None,
    tolerance: float | None = EQUAL_TOLERANCE,
) -> Array:
    """Values relative to their group.

    With n = sum of the weights of group g::

        mean_g = sum(w x) / n        var_g = sum(w (x - mean_g)^2) / (n - ddof)
        mean:      x - mean_g
        mean_std:  (x - mean_g) / (sqrt(var_g) + epsilon)

    Weights decide what one entry of the statistics is: 1 for every row (long episodes weigh
    more), ``trajectory_weights`` for one per trajectory, 1 on some rows and 0 on the others for a
    chosen representative. Rows of weight 0 are compared but do not count.

    Sources: GRPO (arXiv 2402.03300) and GiGPO (arXiv 2505.10978) with ddof 1; HGPO
    (arXiv 2602.22817) with ddof 0; Dr.GRPO (arXiv 2503.20783) for ``mean``.

    Args:
        values: Shape (n,).
        labels: Group of each value, integers; a negative label takes no part and gets 0.
        normaliser: ``mean`` or ``mean_std``.
        ddof: Taken from n in the variance, 0 or 1.
        epsilon: Added to the standard deviation.
        singleton: What a group of one entry gets: ``zero``, or ``raw`` (mean 0, spread 1).
        weights: Shape (n,), >= 0; ``None``: 1 for every value.
        tolerance: Groups with range <= tolerance * max(1, |mean|) get exactly 0, so rounding is
            never divided by epsilon. ``None`` switches the rule off (the published behaviour).

    Returns:
        Shape (n,), float64.

    Raises:
        DataError: shapes differ, a value is not finite, a group has no weight at all, or an
            unknown word.
    """
    if normaliser not in ("mean", "mean_std") or singleton not in ("zero", "raw"):
        raise DataError(f"unknown normaliser {normaliser!r} or singleton policy {singleton!r}")
    values = floats("values", values)
    labels = integers("labels", labels, like=values)
    w = None if weights is None else floats("weights", weights, like=values)
    taking_part = labels >= 0
    if taking_part.all():  # no copies: most of the time of a large batch is memory
        return _normalised(values, labels, w, normaliser, ddof, epsilon, singleton, tolerance)
    result = np.zeros(len(values))
    values, labels = values[taking_part], labels[taking_part]
    w = None if w is None else w[taking_part]
    result[taking_part] = _normalised(
        values, labels, w, normaliser, ddof, epsilon, singleton, tolerance
    )
    return result


def _normalised(
    x: Array,
    labels: Labels,
    w: Array | None,
    normaliser: Normaliser,
    ddof: int,
    epsilon: float,
    singleton: Singleton,
    tolerance: float | None,
) -> Array:
    """``normalise`` of checked values that all take part."""
    group = dense(labels)
    count = np.bincount(group, weights=w).astype(np.float64)
    if w is not None and ((w < 0).any() or (count <= 0).any()):
        raise DataError("weights must be >= 0 with a positive sum in every group")
    mean = np.bincount(group, weights=x if w is None else w * x) / count
    alone = count < 1.5
    silent = np.zeros(len(count), dtype=np.bool_)
    if tolerance is not None:
        silent = _equal(x, group, mean, tolerance)
    if singleton == "raw":
        mean = np.where(alone, 0.0, mean)
        silent &= ~alone
    else:
        silent |= alone
    found = mean[group]
    np.subtract(x, found, out=found)
    if normaliser == "mean_std":
        square = found * found
        if w is not None:
            square *= w
        squares = np.bincount(group, weights=square)
        deviation = np.sqrt(squares / np.where(alone, 1.0, count - ddof))
        divisor = np.where(alone, 1.0, deviation) + epsilon
        found /= np.where(divisor > 0.0, divisor, 1.0)[group]
    found[silent[group]] = 0.0
    return found


def leave_one_out(
    values: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    singleton: Singleton = "zero",
    weights: npt.ArrayLike | None = None,
    tolerance: float | None = EQUAL_TOLERANCE,
) -> Array:
    """Each value minus the mean of the *other* entries of its group::

        A = n / (n - 1) * (x - mean_g)

    Source: RLOO (arXiv 2402.14740). Arguments, errors and edge cases as in ``normalise``.

    Returns:
        Shape (n,), float64.
    """
    centred = normalise(values, labels, singleton=singleton, weights=weights, tolerance=tolerance)
    labels = np.asarray(labels)
    taking_part = labels >= 0
    group = dense(labels[taking_part])
    w = np.ones(len(centred)) if weights is None else np.asarray(weights, dtype=np.float64)
    count = np.bincount(group, weights=w[taking_part])
    factor = np.where(count < 1.5, 1.0, count / np.where(count < 1.5, 1.0, count - 1.0))
    centred[taking_part] *= factor[group]
    return centred


def trajectory_weights(trajectory: npt.ArrayLike) -> Array:
    """Weights that make every trajectory one entry, however many rows it has::

        w = 1 / (rows of the trajectory)

    Args:
        trajectory: Which episode each row belongs to, integers, shape (n,).

    Returns:
        Weights, shape (n,); they sum to the number of trajectories.
    """
    trajectory = integers("trajectory", trajectory)
    if not len(trajectory):
        return np.zeros(0)
    place = dense(trajectory)
    return np.asarray(1.0 / np.bincount(place)[place])


def top_margin(
    values: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    normaliser: Normaliser = "mean_std",
    epsilon: float = 1e-6,
    tolerance: float | None = EQUAL_TOLERANCE,
) -> Array:
    """The best value of each group gets its margin over the second best, the others 0.

    ::

        A(best) = r_1 - r_2,   divided by (std(group) + epsilon) with ``mean_std``, ddof 1

    Two that share the best value have a margin of 0. Source: pass@k training (arXiv 2503.19595).

    Args:
        values: One entry each, shape (n,).
        labels: Group of each entry, integers, shape (n,); negative: takes no part.
        normaliser: Whether the margin is divided by the group's spread.
        epsilon: Added to the standard deviation.
        tolerance: As in ``normalise``. ``None``: off, and groups of one are refused as the
            published code does.

    Returns:
        Shape (n,); 0 for a group of one.

    Raises:
        DataError: shapes differ, a value is not finite, or (tolerance ``None``) a group of one.
    """
    values = floats("values", values)
    labels = integers("labels", labels, like=values)
    result = np.zeros(len(values))
    members = np.flatnonzero(labels >= 0)
    order = members[np.lexsort((values[members], labels[members]))]
    last = np.flatnonzero(np.diff(labels[order], append=-1))  # ends of the groups
    first = np.concatenate(([0], last[:-1] + 1)).astype(np.int64)
    several = last > first
    if tolerance is None and not several.all():
        alone = labels[order[last[~several]]][0]
        raise DataError(f"group {alone} has one entry; a margin needs two")
    best, second = order[last[several]], order[last[several] - 1]
    margin = values[best] - values[second]
    if normaliser == "mean_std":
        margin = margin / (deviations(values, labels)[best] + epsilon)
    if tolerance is not None:
        margin = np.where(equal_groups(values, labels, tolerance=tolerance)[best], 0.0, margin)
    result[best] = margin
    return result


def whiten(
    values: npt.ArrayLike,
    weights: npt.ArrayLike,
    *,
    shift: bool = True,
    epsilon: float = 1e-8,
    tolerance: float | None = EQUAL_TOLERANCE,
) -> Array:
    """Values with mean 0 and variance 1 over the whole batch.

    ::

        n = sum(w)     mean = sum(w x) / n     var = sum(w (x - mean)^2) / (n - 1)
        (x - mean) / sqrt(var + epsilon)

    Source: REINFORCE++ (arXiv 2501.03262), over all trained tokens: with one value per step, w is
    the step's number of tokens.

    Args:
        values: Shape (n,).
        weights: Shape (n,), >= 0.
        shift: Subtract the mean. Without it values keep their sign and only their scale changes.
        epsilon: Added to the variance.
        tolerance: A batch within it of equal gives zeros if shifted; ``None``: off.

    Returns:
        Shape (n,); zeros if fewer than two tokens count.

    Raises:
        DataError: shapes differ, a value is not finite or a weight is negative.
    """
    values = floats("values", values)
    weights = floats("weights", weights, like=values)
    if (weights < 0).any():
        raise DataError("weights must be >= 0")
    n = weights.sum()
    if n < 2:
        return np.zeros(len(values))
    mean = (weights * values).sum() / n
    variance = (weights * (values - mean) ** 2).sum() / (n - 1)
    if shift and tolerance is not None:
        counted = values[weights > 0]
        if counted.max() - counted.min() <= tolerance * max(1.0, abs(mean)):
            return np.zeros(len(values))
    return np.asarray((values - mean if shift else values) / np.sqrt(variance + epsilon))


def equal_groups(
    values: npt.ArrayLike, labels: npt.ArrayLike, *, tolerance: float = EQUAL_TOLERANCE
) -> Flags:
    """Whether each value lies in a group of equal values (range within the tolerance).

    Returns:
        Shape (n,), bool; ``False`` where the label is negative.
    """
    values = floats("values", values)
    labels = integers("labels", labels, like=values)
    result = np.zeros(len(values), dtype=np.bool_)
    taking_part = labels >= 0
    if taking_part.any():
        x = values[taking_part]
        group = dense(labels[taking_part])
        mean = np.bincount(group, weights=x) / np.bincount(group)
        result[taking_part] = _equal(x, group, mean, tolerance)[group]
    return result


def deviations(values: npt.ArrayLike, labels: npt.ArrayLike, *, ddof: int = 1) -> Array:
    """Standard deviation of the group of each value; 0 for negative labels and groups of one.

    Returns:
        Shape (n,).

    Raises:
        DataError: shapes differ or a value is not finite.
    """
    values = floats("values", values)
    labels = integers("labels", labels, like=values)
    result = np.zeros(len(values))
    taking_part = labels >= 0
    x = values[taking_part]
    group = dense(labels[taking_part])
    count = np.bincount(group)
    mean = np.bincount(group, weights=x) / count
    square = np.bincount(group, weights=(x - mean[group]) ** 2)
    result[taking_part] = np.sqrt(square / np.maximum(count - ddof, 1))[group]
    return result


def _equal(x: Array, group: Labels, mean: Array, tolerance: float) -> Flags:
    low, high = np.full(len(mean), np.inf), np.full(len(mean), -np.inf)
    np.minimum.at(low, group, x)
    np.maximum.at(high, group, x)
    return np.asarray(high - low <= tolerance * np.maximum(1.0, np.abs(mean)), dtype=np.bool_)
