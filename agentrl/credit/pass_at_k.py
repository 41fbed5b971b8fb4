"""Pass@k: only the best trajectory of a group is reinforced, by its margin over the second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl.core.errors import DataError
from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.columns import Columns, columns_of, credit_result
from agentrl.credit.episode import entry_weights, equal_group_metrics, penalised_scores
from agentrl.credit.functional import EQUAL_TOLERANCE, Array, Labels, Normaliser, top_margin
from agentrl.credit.options import Entries, check_options

__all__ = ["PassAtK"]


@dataclass(frozen=True, slots=True)
class PassAtK:
    """Policy optimisation of the best of a group.

    ::

        A(best) = (r_1 - r_2) / (std + epsilon),  0 for all others and where the best is shared

    All steps of the best trajectory get the value. With binary rewards only groups with exactly one
    success teach anything: use it to broaden a policy that already succeeds sometimes.

    Source: arXiv 2503.19595. The published code gives the value to one row of the best trajectory
    and refuses groups of one.

    Attributes:
        normaliser: ``mean_std`` divides the margin by the group's spread, ``mean`` does not.
        invalid_action_penalty: As in GRPO (a trajectory's score loses the mean penalty of its
            steps). entries: only in reference mode.
        epsilon: Added to the standard deviation.
        reference: Reproduce the published code, bugs included.
    """

    normaliser: Normaliser = "mean_std"
    invalid_action_penalty: float = 0.0
    entries: Entries | None = None
    epsilon: float = 1e-6
    reference: bool = False

    def __post_init__(self) -> None:
        check_options(self)

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages of the steps; parts: ``episode``."""
        columns = columns_of(groups)
        parts = {"episode": self.episode(columns)}
        return credit_result(columns, parts, metrics=equal_group_metrics(columns))

    def episode(self, columns: Columns, scores: Array | None = None) -> Array:
        """The episode part, shape (M,); ``scores`` replaces the penalised episode scores.

        Raises:
            DataError: in reference mode, a group of one entry.
        """
        if scores is None:
            scores = penalised_scores(columns, self.invalid_action_penalty)
        result = np.zeros(len(scores))
        if self.reference:
            chosen = entry_weights(columns, self.entries or "rows", reference=True) > 0
            _require_two(columns, np.flatnonzero(chosen))
            result[chosen] = top_margin(
                scores[chosen],
                columns.group[chosen],
                normaliser=self.normaliser,
                epsilon=self.epsilon,
                tolerance=None,
            )
            return result
        place = columns.trajectory
        entries = np.bincount(place, weights=scores) / np.bincount(place)
        margin = top_margin(
            entries,
            columns.group[columns.first],
            normaliser=self.normaliser,
            epsilon=self.epsilon,
            tolerance=EQUAL_TOLERANCE,
        )
        return np.asarray(margin[place])


def _require_two(columns: Columns, entries: Labels) -> None:
    group = columns.group[entries]
    alone = entries[np.bincount(group, minlength=1)[group] == 1]
    if alone.size:
        raise DataError(
            f"{columns.where(int(alone[0]))} is the one entry of its group: a margin needs two; "
            "play larger groups, or leave reference mode, where it gets 0"
        )
