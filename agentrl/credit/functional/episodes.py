"""What happens to the scores of one group beyond centring: amplification and filters."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from agentrl.core.errors import DataError
from agentrl.credit.functional.checks import Array, Labels, floats

__all__ = ["amplified", "informative", "soft_mean"]


def soft_mean(scores: npt.ArrayLike, tau: float) -> float:
    """``tau * log(mean(exp(score / tau)))``: between the mean (large tau) and the maximum (small).

    Raises:
        DataError: no scores, a score is not finite, or tau <= 0.
    """
    scores = floats("scores", scores)
    if not len(scores) or not tau > 0.0:
        raise DataError(f"soft_mean needs scores and tau > 0, got {len(scores)} and tau={tau}")
    top = scores.max()
    return float(top + tau * np.log(np.mean(np.exp((scores - top) / tau))))


def amplified(
    scores: npt.ArrayLike, baseline: npt.ArrayLike, *, alpha: float = 3.0, best: float = 1.0
) -> Array:
    """Scores against a baseline, successes amplified.

    ::

        A = 1                      if score >= best
        A = alpha * (score - b)    if score >= b
        A = score - b              otherwise

    Source: R3L (github.com/shiweijiezero/R3L), alpha 3, best 1.

    Args:
        scores: Shape (n,).
        baseline: Of each score's group, shape (n,) or a number.
        alpha: Factor of what is above the baseline, >= 0.
        best: The largest reward the task gives.

    Returns:
        Shape (n,).

    Raises:
        DataError: a value is not finite.
    """
    scores = floats("scores", scores)
    above = scores - np.broadcast_to(np.asarray(baseline, dtype=np.float64), scores.shape)
    return np.where(scores >= best, 1.0, np.where(above >= 0.0, alpha * above, above))


def informative(
    advantages: npt.ArrayLike,
    *,
    threshold: float = 0.01,
    positive_only: bool = False,
    multiple_of: int = 1,
) -> tuple[Labels, float]:
    """Which trajectories are worth a gradient: those with ``|A| >= threshold``.

    Enough of the others, the largest first, are kept to make the number a positive multiple of
    ``multiple_of`` (workers), as far as there are any.

    Source: LOOP (arXiv 2502.01600), code apple/ml-loop.

    Args:
        advantages: One per trajectory, shape (n,).
        threshold: Smallest size that counts, >= 0.
        positive_only: Use A itself instead of |A|.
        multiple_of: Number of workers, >= 1.

    Returns:
        Positions that are kept, in order, and the largest dropped size (0 if none is dropped).

    Raises:
        DataError: a value is not finite or ``multiple_of`` < 1.
    """
    advantages = floats("advantages", advantages)
    if multiple_of < 1:
        raise DataError(f"multiple_of must be >= 1, got {multiple_of}")
    size = advantages if positive_only else np.abs(advantages)
    order = np.argsort(-size, kind="stable")
    wanted = int((size >= threshold).sum())
    count = min(len(size), max(math.ceil(wanted / multiple_of), 1) * multiple_of)
    dropped = size[order[count:]]
    return np.sort(order[:count]).astype(np.int64), float(dropped.max(initial=0.0))
