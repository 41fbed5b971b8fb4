"""Partitions: which rows are compared with one another. A label is an integer; -1 means with none.

Every partition stays inside the task groups: rows of two groups never share a label. Labels are
numbered from 0 by first appearance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import numpy.typing as npt

from agentrl.core.errors import DataError
from agentrl.credit.functional.anchors import anchor_key, reference_anchor_key
from agentrl.credit.functional.checks import Labels, integers

__all__ = [
    "cluster_sizes",
    "context_partition",
    "exact_partition",
    "number",
    "refine",
    "share_of_singletons",
    "similarity_partition",
    "text_ratio",
]


def number(keys: Iterable[Hashable]) -> Labels:
    """Number keys from 0 by first appearance; equal keys get equal numbers, ``None`` gets -1."""
    numbers: dict[Hashable, int] = {}
    return np.array(
        [-1 if key is None else numbers.setdefault(key, len(numbers)) for key in keys],
        dtype=np.int64,
    )


def exact_partition(
    anchors: Sequence[Any], group: npt.ArrayLike, *, reference: bool = False
) -> Labels:
    """Rows of one group with equal anchors share a label, across and inside trajectories.

    Source: GiGPO, anchor state grouping (arXiv 2505.10978). One pass, O(n).

    Args:
        anchors: Anchor of each row, length n; ``None`` is compared with nothing.
        group: Task group of each row, integers, shape (n,).
        reference: Use the published code's equality (``reference_anchor_key``).

    Returns:
        Labels, shape (n,).

    Raises:
        DataError: lengths differ, or an anchor is not JSON-like.
    """
    group = integers("group", group, like=anchors)
    key_of = reference_anchor_key if reference else anchor_key
    return number(
        None if anchor is None else (one, key_of(anchor))
        for one, anchor in zip(group.tolist(), anchors, strict=True)
    )


def similarity_partition(
    texts: Sequence[str | None],
    group: npt.ArrayLike,
    threshold: float,
    *,
    reference: bool = False,
) -> Labels:
    """Rows of one group with similar texts share a label (greedy, each cluster has one centre).

    A text joins the first cluster, in order of creation, whose centre it resembles::

        ratio(text, centre) = 2 * matched characters / total characters >= threshold

    Texts are taken most frequent first, ties in alphabetical order, so the result depends on
    neither the order of the rows nor their ids, and a centre is a state that was really common.
    Characters are never ignored for being frequent. In reference mode rows are taken in the order
    given and difflib's ``autojunk`` is on: in texts of 200 characters and more it ignores frequent
    characters, so two long texts that differ in four letters may score 0.

    Source: GiGPO, similarity mode of the public code (threshold 0.95; 0.9 for search).

    Args:
        texts: Text of each row, length n; ``None`` is compared with nothing.
        group: Task group of each row, integers, shape (n,).
        threshold: In (0, 1).
        reference: Behave as the published code does.

    Returns:
        Labels, shape (n,). Quadratic in the length of a text in the worst case.

    Raises:
        DataError: an anchor is not text, or the threshold is outside (0, 1).
    """
    group = integers("group", group, like=texts)
    if not 0.0 < threshold < 1.0:
        raise DataError(f"the similarity threshold must be strictly in (0, 1), got {threshold}")
    counts: dict[int, Counter[str]] = {}
    for one, text in zip(group.tolist(), texts, strict=True):
        if text is not None and not isinstance(text, str):
            raise DataError(
                f"similarity compares texts, got an anchor of type {type(text).__name__}; "
                "use exact anchors for structured states"
            )
        if text is not None:
            counts.setdefault(one, Counter())[text] += 1
    centre_of: dict[tuple[int, str], int] = {}
    for one, seen in counts.items():
        order = list(seen) if reference else sorted(seen, key=lambda text: (-seen[text], text))
        for text, centre in _centres(order, threshold, autojunk=reference).items():
            centre_of[one, text] = centre
    return number(
        None if text is None else (one, centre_of[one, text])
        for one, text in zip(group.tolist(), texts, strict=True)
    )


def text_ratio(text: str, centre: str, *, autojunk: bool = False) -> float:
    """Share of matched characters of two texts, in [0, 1]: difflib's ratio.

    It depends a little on the order of its arguments. ``autojunk`` ignores frequent characters of a
    ``centre`` of 200 characters and more.
    """
    return SequenceMatcher(None, text, centre, autojunk=autojunk).ratio()


def _centres(texts: Sequence[str], threshold: float, *, autojunk: bool) -> dict[str, int]:
    matchers: list[SequenceMatcher[str]] = []
    centres: dict[str, int] = {}
    for text in texts:
        for centre, matcher in enumerate(matchers):
            matcher.set_seq1(text)
            # The quick ratios are upper bounds: they only spare the slow one.
            if (
                matcher.real_quick_ratio() >= threshold
                and matcher.quick_ratio() >= threshold
                and matcher.ratio() >= threshold
            ):
                centres[text] = centre
                break
        else:
            centres[text] = len(matchers)
            matchers.append(SequenceMatcher(None, "", text, autojunk=autojunk))
    return centres


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
        key = labels[both] * (int(other.max()) + 1) + other[both]
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        rank = np.empty(len(first), dtype=np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        result[both] = rank[place]
    return result


def cluster_sizes(labels: npt.ArrayLike) -> Labels:
    """Size of the cluster of each row, shape (n,); 1 where the label is negative."""
    labels = integers("labels", labels)
    sizes = np.ones(len(labels), dtype=np.int64)
    labelled = labels >= 0
    if labelled.any():
        _, place, count = np.unique(labels[labelled], return_inverse=True, return_counts=True)
        sizes[labelled] = count[place]
    return sizes


def share_of_singletons(labels: npt.ArrayLike) -> float:
    """Share of rows that are compared with nothing; 0 for no rows."""
    sizes = cluster_sizes(labels)
    return float((sizes == 1).mean()) if len(sizes) else 0.0
