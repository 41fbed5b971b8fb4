"""Labels: integers that say which rows belong together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agentrl.credit.functional.checks import Labels, integers

__all__ = ["dense"]


def dense(labels: npt.ArrayLike) -> Labels:
    """Labels renumbered 0 .. k-1 without gaps, in their order; equal labels stay equal.

    What ``np.unique(labels, return_inverse=True)[1]`` gives. O(n) without a sort when the labels
    are small numbers, which those of the partitions are.

    Args:
        labels: Integers, shape (n,).

    Returns:
        Shape (n,); ``max() + 1`` is the number of different labels.

    Raises:
        DataError: ``labels`` is not 1-D integers.
    """
    labels = integers("labels", labels)
    if not len(labels):
        return labels
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high > 8 * len(labels):
        return np.unique(labels, return_inverse=True)[1].astype(np.int64)
    present = np.zeros(high + 1, dtype=np.bool_)
    present[labels] = True
    if present.all():
        return labels
    return np.asarray((np.cumsum(present) - 1)[labels], dtype=np.int64)
