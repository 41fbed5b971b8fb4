"""Partitions: which rows are compared with one another. A label is an integer; -1 means with none.

Every partition stays inside the task groups: rows of two groups never share a label. Labels are
numbered from 0 by first appearance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from agentrl.core.errors import DataError
from agentrl.credit.functional.anchors import anchor_key, reference_anchor_key
from agentrl.credit.functional.checks import Labels, RowError, integers
from agentrl.credit.functional.labels import dense

__all__ = [
    "cluster_sizes",
    "context_partition",
    "exact_partition",
    "number",
    "refine",
    "share_of_singletons",
]


def number(keys: Iterable[Hashable]) -> Labels:
    """Number keys from 0 by first appearance; equal keys get equal numbers, ``None`` gets -1."""
    numbers: defaultdict[Hashable, int] = defaultdict(count().__next__, {None: -1})
    return np.array([numbers[key] for key in keys], dtype=np.int64)


def exact_partition(
    anchors: Iterable[Any], group: npt.ArrayLike, *, reference: bool = False
) -> Labels:
    """Rows of one group with equal anchors share a label, across and inside trajectories.

    Source: GiGPO, anchor state grouping (arXiv 2505.10978). One pass, O(n).

    Args:
        anchors: Anchor of each row, n of them; ``None`` is compared with nothing.
        group: Task group of each row, integers >= 0, shape (n,).
        reference: Use the published code's equality (``reference_anchor_key``).

    Returns:
        Labels, shape (n,).

    Raises:
        DataError: lengths differ, or (a ``RowError``) an anchor is not JSON-like.
    """
    group = integers("group", group)
    key_of = reference_anchor_key if reference else anchor_key
    following = count().__next__
    # A small dictionary per group: one of all groups' anchors would not fit a processor's cache.
    numbers: defaultdict[int, defaultdict[Hashable, int]]
    numbers = defaultdict(lambda: defaultdict(following, {None: -1}))
    labels: list[int] = []
    try:
        for anchor, of in zip(anchors, group.tolist(), strict=True):
            plain = type(anchor) is str or anchor is None  # the common cases, kept fast
            labels.append(numbers[of][anchor if plain else key_of(anchor)])
    except DataError as error:
        raise RowError(str(error), row=len(labels)) from None
    except ValueError:
        raise DataError(f"anchors and group must have the same length, here {len(group)}") from None
    return np.array(labels, dtype=np.int64)


def context_partition(
    labels: npt.ArrayLike, trajectory: npt.ArrayLike, index: npt.ArrayLike, length: int
) -> list[Labels]:
    """Partitions by the last k states, for k = 1 .. ``length``.

    Two rows share a level-k label when their states and the k - 1 states before them agree. Level
    1 is ``labels`` itself; each level refines the one before. A row with fewer than k - 1
    predecessors, or with an unlabelled state among them, has label -1 at level k.

    Source: HGPO, context groups (arXiv 2602.22817). O(n log n) per level, no keys of length k.

    Args:
        labels: Partition of the single states (``exact_partition``), shape (n,).
        trajectory: Which episode each row belongs to, integers, shape (n,).
        index: Time of each row in its episode, integers, shape (n,).
        length: Longest context, >= 1.

    Returns:
        ``length`` label arrays of shape (n,).

    Raises:
        DataError: shapes differ or ``length`` < 1.
    """
    labels = integers("labels", labels)
    trajectory = integers("trajectory", trajectory, like=labels)
    index = integers("index", index, like=labels)
    if length < 1:
        raise DataError(f"the context length must be >= 1, got {length}")
    order = np.lexsort((index, trajectory))
    previous = np.full(len(labels), -1, dtype=np.int64)
    same = trajectory[order][1:] == trajectory[order][:-1]
    previous[order[1:][same]] = order[:-1][same]
    levels = [labels]
    for _ in range(1, length):
        before = np.where(previous >= 0, levels[-1][previous], -1)
        levels.append(refine(levels[-1], before))
    return levels


def refine(labels: npt.ArrayLike, other: npt.ArrayLike) -> Labels:
    """The common refinement of two partitions; -1 where either has -1.

    Args:
        labels: Shape (n,). other: Shape (n,).

    Returns:
        Labels, shape (n,), numbered from 0 by first appearance.
    """
    labels = integers("labels", labels)
    other = integers("other", other, like=labels)
    both = (labels >= 0) & (other >= 0)
    result = np.full(len(labels), -1, dtype=np.int64)
    if both.any():
        result[both] = _by_first_appearance(labels[both] * (int(other.max()) + 1) + other[both])
    return result


def _by_first_appearance(keys: Labels) -> Labels:
    """``number`` of integers: one sort, whose order among equals does not matter."""
    order = np.argsort(keys)
    ordered = keys[order]
    place = np.empty(len(keys), dtype=np.int64)
    place[order] = np.cumsum(np.concatenate(([False], ordered[1:] != ordered[:-1])))
    first = np.empty(int(place.max()) + 1, dtype=np.int64)
    first[place[::-1]] = np.arange(len(keys), dtype=np.int64)[::-1]
    appears = np.zeros(len(keys), dtype=np.bool_)
    appears[first] = True
    return np.asarray((np.cumsum(appears) - 1)[first][place], dtype=np.int64)


def cluster_sizes(labels: npt.ArrayLike) -> Labels:
    """Size of the cluster of each row, shape (n,); 1 where the label is negative."""
    labels = integers("labels", labels)
    sizes = np.ones(len(labels), dtype=np.int64)
    labelled = labels >= 0
    if labelled.any():
        place = dense(labels[labelled])
        sizes[labelled] = np.bincount(place)[place]
    return sizes


def share_of_singletons(labels: npt.ArrayLike) -> float:
    """Share of rows that are compared with nothing; 0 for no rows."""
    sizes = cluster_sizes(labels)
    return float((sizes == 1).mean()) if len(sizes) else 0.0
