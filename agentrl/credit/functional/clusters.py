"""Clusters of hidden states by direction: states that the policy sees alike."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from agentrl.core.errors import DataError
from agentrl.credit.functional.checks import Array, Labels, floats, integers
from agentrl.credit.functional.partitions import number

__all__ = ["Centroid", "cosine_partition"]

Centroid = Literal["mean", "first"]


def cosine_partition(
    hidden: npt.ArrayLike,
    group: npt.ArrayLike,
    radius: float,
    *,
    centroid: Centroid = "mean",
    reference: bool = False,
) -> Labels:
    """Rows of one group whose hidden states point the same way share a label (one greedy pass).

    Each row joins the nearest cluster if it is near enough, else it opens one::

        distance = 1 - cos(h, centroid) <= radius (+ 1e-9)        ties: the earliest cluster

    The pass depends on the order of the rows, so they are taken in the order of their directions
    (lexicographic), which no shuffling and no renaming changes; in reference mode, in the order
    given.

    Source: BiPACE (arXiv 2606.25556): radius 0.10 for a 7B model, 0.05 for 1.5B. How the centroid
    moves is not stated there; ``mean`` (of the members' directions) is our reading.

    Args:
        hidden: Hidden state of each row, shape (n, d), none of them zero.
        group: Task group of each row, integers, shape (n,).
        radius: Largest distance to a centroid, in [0, 2]. 0 joins equal directions only.
        centroid: ``mean`` of the members' unit vectors, or the ``first`` member.
        reference: Take rows in the order given.

    Returns:
        Labels, shape (n,), numbered from 0 by first appearance. O(n * clusters * d).

    Raises:
        DataError: shapes differ, a value is not finite, a vector is 0, or the radius is out of
            range.
    """
    hidden = floats("hidden", hidden, rank=2)
    group = integers("group", group, like=hidden)
    if not 0.0 <= radius <= 2.0:
        raise DataError(f"the radius must be in [0, 2], got {radius}")
    if not len(hidden):
        return number([])
    length = np.linalg.norm(hidden, axis=1)
    if (length == 0.0).any():
        raise DataError(
            f"the hidden state of row {int(np.argmin(length))} is 0: it points nowhere; check the "
            "layer that the annotator scores"
        )
    unit = hidden / length[:, None]
    order = np.arange(len(unit))
    if not reference:
        order = np.lexsort(unit.T[::-1])
    keys: dict[int, tuple[int, int]] = {}
    order = order[np.argsort(group[order], kind="stable")]
    for members in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        label = int(group[members[0]])
        for row, cluster in zip(
            members.tolist(), _greedy(unit[members], radius + 1e-9, centroid), strict=True
        ):
            keys[row] = (label, cluster)
    return number(keys[row] for row in range(len(unit)))


def _greedy(unit: Array, radius: float, centroid: Centroid) -> list[int]:
    centres = np.empty_like(unit)
    sums = np.empty_like(unit)
    count = 0
    found = []
    for vector in unit:
        distance = 1.0 - centres[:count] @ vector
        nearest = int(np.argmin(distance)) if count else -1
        if nearest < 0 or distance[nearest] > radius:
            nearest, count = count, count + 1
            centres[nearest] = sums[nearest] = vector
        elif centroid == "mean":
            sums[nearest] += vector
            length = np.linalg.norm(sums[nearest])
            if length > 1e-12:  # opposite members leave no direction: keep the last one
                centres[nearest] = sums[nearest] / length
        found.append(nearest)
    return found
