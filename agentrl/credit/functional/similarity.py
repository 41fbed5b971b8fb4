"""The partition by similar texts: difflib's ratio decides, a bound spares most of its work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

import numpy.typing as npt

from agentrl.core.errors import DataError
from agentrl.credit.functional.checks import Labels, RowError, integers
from agentrl.credit.functional.partitions import number

__all__ = ["similarity_partition", "text_ratio"]

NewMatcher = Callable[[str, bool], "SequenceMatcher[str]"]
"""Makes a matcher with the given second text; the other argument is autojunk."""


def similarity_partition(
    texts: Sequence[str | None],
    group: npt.ArrayLike,
    threshold: float,
    *,
    reference: bool = False,
) -> Labels:
    """Rows of one group with similar texts share a label (greedy, each cluster has one centre).

    Rows are taken in the order given. A text joins the first cluster, in order of creation, whose
    first member it resembles, else it opens one::

        ratio(text, first member) = 2 * matched characters / total characters >= threshold

    So the partition depends on the order of the rows: give them in an order that means something
    (the estimators take trials in their order, and steps in theirs). Being similar is not
    transitive, and the ratio depends a little on the order of its arguments.

    Every character counts. In reference mode difflib's ``autojunk`` is on: in texts of 200
    characters and more it ignores frequent characters, so two long texts that differ in four
    letters may score 0.

    Source: GiGPO, similarity mode of the public code (threshold 0.95; 0.9 for search).

    Args:
        texts: Text of each row, length n; ``None`` is compared with nothing.
        group: Task group of each row, integers, shape (n,).
        threshold: In (0, 1).
        reference: Behave as the published code does.

    Returns:
        Labels, shape (n,), numbered from 0 by first appearance; -1 where there is no text. Pairs
        that are far apart cost O(length^2 / 64), the others what difflib needs.

    Raises:
        DataError: the threshold is outside (0, 1), or (a ``RowError``) an anchor is not text.
    """
    group = integers("group", group, like=texts)
    if not 0.0 < threshold < 1.0:
        raise DataError(f"the similarity threshold must be strictly in (0, 1), got {threshold}")
    new_matcher = _matcher()
    clusters: dict[int, _Clusters] = {}
    keys: list[tuple[int, int] | None] = []
    for one, text in zip(group.tolist(), texts, strict=True):
        if text is None:
            keys.append(None)
            continue
        if not isinstance(text, str):
            raise RowError(
                f"similarity compares texts, got an anchor of type {type(text).__name__}; "
                "use exact anchors for structured states",
                row=len(keys),
            )
        if one not in clusters:
            clusters[one] = _Clusters(threshold, reference, new_matcher)
        keys.append((one, clusters[one].place(text)))
    return number(keys)


def text_ratio(text: str, centre: str, *, autojunk: bool = False) -> float:
    """Share of matched characters of two texts, in [0, 1]: difflib's ratio.

    It depends a little on the order of its arguments. ``autojunk`` ignores frequent characters of a
    ``centre`` of 200 characters and more.
    """
    return SequenceMatcher(None, text, centre, autojunk=autojunk).ratio()


class _Clusters:
    """The clusters of one group, as far as its rows have been seen."""

    def __init__(self, threshold: float, autojunk: bool, new_matcher: NewMatcher) -> None:
        from rapidfuzz.distance import LCSseq  # loaded only by those who compare texts

        self._common = LCSseq.similarity
        self._threshold = threshold
        self._autojunk = autojunk
        self._new_matcher = new_matcher
        self._centres: list[tuple[str, SequenceMatcher[str]]] = []
        self._seen: dict[str, int] = {}

    def place(self, text: str) -> int:
        """Number of the cluster of the next row."""
        # An equal text met the same clusters before, and those opened since come later: same place.
        place = self._seen.get(text)
        if place is None:
            place = self._seen[text] = self._find(text)
        return place

    def _find(self, text: str) -> int:
        for cluster, (centre, matcher) in enumerate(self._centres):
            # difflib's matching blocks are disjoint and in the same order in both texts, so their
            # characters are a common subsequence: the longest one is never shorter. Where even
            # that falls short the ratio does too. This holds with autojunk, which only removes
            # matches, and needs no rounding: both sides are numbers of characters.
            needed = _needed(len(text) + len(centre), self._threshold)
            if self._common(text, centre, score_cutoff=needed) < needed:
                continue
            matcher.set_seq1(text)
            if matcher.ratio() >= self._threshold:
                return cluster
        self._centres.append((text, self._new_matcher(text, self._autojunk)))
        return len(self._centres) - 1


def _needed(total: int, threshold: float) -> int:
    """Fewest matched characters of ``total`` in two texts with which the ratio reaches it."""
    matched = max(int(threshold * total / 2.0) - 1, 0)
    while total and 2.0 * matched / total < threshold:
        matched += 1
    return matched


def _matcher() -> NewMatcher:
    """The matcher of difflib, compiled where there is one: the same blocks, 20x faster."""
    try:
        from cydifflib import SequenceMatcher as matcher  # noqa: N813  (it may be either)
    except ImportError:  # no wheel for this Python: slower, never different
        matcher = SequenceMatcher
    return lambda centre, autojunk: matcher(None, "", centre, autojunk=autojunk)
