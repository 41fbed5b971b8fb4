"""RLAnything: a judge's votes on every step, compared between episodes at the same step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from agentrl.core.errors import DataError
from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.annotations import annotation
from agentrl.credit.columns import Columns, columns_of, credit_result
from agentrl.credit.episode import equal_group_metrics
from agentrl.credit.functional import (
    EQUAL_TOLERANCE,
    Array,
    Labels,
    Singleton,
    episode_scores,
    normalise,
    number,
)
from agentrl.credit.options import check_options, lone_get_zero, singleton_of

__all__ = ["RLAnything"]


@dataclass(frozen=True, slots=True)
class RLAnything:
    """Step rewards of a judge, normalised across episodes at equal step index.

    ::

        r_t = score of the episode + mean of the step's votes
        A_t = (r_t - mean) / std      over the group's episodes at their t-th act, ddof 0

    Source: github.com/Gen-Verse/Open-AgentRL, for scores in {0, 1}. There an index that only one
    episode reaches keeps its raw reward, so the tail of the longest episode is always reinforced;
    here it gets 0 outside reference mode. Votes come from the annotation ``votes``; ``None`` is a
    vote that could not be read and does not count.

    Attributes:
        singleton: What an index reached by one episode gets; ``None``: ``zero``, or ``raw`` in
            reference mode.
        reference: Reproduce the published code.
    """

    singleton: Singleton | None = None
    reference: bool = False
    needs: ClassVar[tuple[str, ...]] = ("votes",)

    def __post_init__(self) -> None:
        check_options(self)

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages; parts: ``step``; groups: ``index``.

        Raises:
            DataError: an act has no annotation ``votes``, or a vote is not 1, -1 or ``None``.
        """
        columns = columns_of(groups)
        rows = columns.rows
        votes = self._votes(columns)
        scores = episode_scores(columns.reward, columns.trajectory)[rows]
        index = same_index(columns)
        rewards = scores + votes
        part = columns.on_steps(self.normalised(rewards, index[rows]))
        parts = {"step": np.where(columns.alone, 0.0, part) if lone_get_zero(self) else part}
        return credit_result(columns, parts, {"index": index}, equal_group_metrics(columns))

    @staticmethod
    def _votes(columns: Columns) -> Array:
        """Mean vote of each act, shape (n,)."""
        rows, found = columns.rows.tolist(), []
        for row, votes in zip(rows, annotation(columns, "votes"), strict=True):
            try:
                found.append(mean_vote(votes))
            except DataError as error:
                raise DataError(f"{columns.where(row)}: {error}") from None
        return np.array(found, dtype=np.float64)

    def normalised(self, rewards: Array, index: Labels) -> Array:
        """Rewards against those of equal label, shape (n,)."""
        return normalise(
            rewards,
            index,
            normaliser="mean_std",
            ddof=0,
            epsilon=0.0,
            singleton=singleton_of(self),
            tolerance=1e-8 if self.reference else EQUAL_TOLERANCE,
        )


def mean_vote(votes: Sequence[int | None]) -> float:
    """Mean of the votes that could be read; 0 if there is none.

    Raises:
        DataError: a vote is not 1, -1 or ``None``.
    """
    if not isinstance(votes, Sequence) or isinstance(votes, str):
        raise DataError(f"votes must be a list of 1, -1 or None, got {votes!r}")
    read = [vote for vote in votes if vote is not None]
    if any(vote not in (1, -1) for vote in read):
        raise DataError(f"votes must be 1, -1 or None, got {list(votes)}")
    return sum(read) / len(read) if read else 0.0


def same_index(columns: Columns) -> Labels:
    """Label of (group, number of the act in its episode), shape (M,); -1 for other steps."""
    rows = columns.rows
    order = np.lexsort((columns.index[rows], columns.trajectory[rows]))
    trajectory = columns.trajectory[rows][order]
    start = np.flatnonzero(np.diff(trajectory, prepend=-1))
    rank = np.empty(len(rows), dtype=np.int64)
    length = np.diff(np.append(start, len(rows)))
    rank[order] = np.arange(len(rows)) - np.repeat(start, length)
    pairs = zip(columns.group[rows].tolist(), rank.tolist(), strict=True)
    return columns.labels_on_steps(number(pairs))
