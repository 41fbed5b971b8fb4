"""Combiners: several comparisons of one step become one number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agentrl.core.errors import DataError
from agentrl.credit.functional.checks import Array, floats, within

__all__ = ["level_contributions", "level_weights", "weighted_sum"]


def weighted_sum(values: Sequence[npt.ArrayLike], weights: Sequence[float]) -> Array:
    """``sum_k weights[k] * values[k]`` for arrays of one shape (n,).

    Raises:
        DataError: no arrays, numbers of arrays and weights differ, or shapes differ.
    """
    if not values or len(values) != len(weights):
        raise DataError(
            f"weighted_sum needs one weight per array, got {len(weights)} weights for "
            f"{len(values)} arrays"
        )
    arrays = [floats(f"values[{k}]", one) for k, one in enumerate(values)]
    total = np.zeros(len(arrays[0]))
    for weight, array in zip(weights, arrays, strict=True):
        total = total + weight * floats("values", array, like=arrays[0])
    return total


def level_weights(levels: Sequence[int], alpha: float) -> Array:
    """Weight of context level k: ``(k + 1) ** alpha``; level 0 is the whole group.

    Source: HGPO's public code (the exponent's base is k + 1, not k); ``alpha = 0`` is the mean.
    """
    alpha = within("alpha", alpha, -100.0, 100.0)
    return np.asarray((np.asarray(levels, dtype=np.float64) + 1.0) ** alpha)


def level_contributions(
    values: npt.ArrayLike, counted: npt.ArrayLike, weights: npt.ArrayLike, *, epsilon: float = 0.0
) -> Array:
    """What each level contributes to the weighted mean over the levels that count.

    ::

        c_k = w_k * a_k / (sum over counted j of w_j + epsilon)      A = sum_k c_k

    A level whose value is 0 counts like any other: agreement at a level is information. A row
    where no level counts has A = 0.

    Source: HGPO (arXiv 2602.22817), with epsilon 1e-6 and levels of value 0 not counted.

    Args:
        values: Value of each level on each row, shape (L, n).
        counted: Which levels count on which row, bool, shape (L, n).
        weights: Weight of each level, > 0, shape (L,).
        epsilon: Added to the sum of weights.

    Returns:
        Contributions, shape (L, n); they sum to A over the first axis.

    Raises:
        DataError: shapes differ or a weight is not positive.
    """
    values = floats("values", values, rank=2)
    weights = floats("weights", weights, like=values)
    counted = np.asarray(counted, dtype=np.bool_)
    if counted.shape != values.shape:
        raise DataError(f"counted must have shape {values.shape}, got {counted.shape}")
    if (weights <= 0).any():
        raise DataError(f"level weights must be positive, got {weights.tolist()}")
    total = weights @ counted + epsilon
    total[total == 0.0] = 1.0  # nothing counts there
    found = np.zeros(values.shape)
    for level, weight in enumerate(weights.tolist()):
        np.multiply(values[level], weight, out=found[level])
        found[level] /= total
        found[level][~counted[level]] = 0.0
    return found
