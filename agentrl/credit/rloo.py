"""RLOO: a trajectory's score against the mean of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.columns import Columns, columns_of, credit_result
from agentrl.credit.episode import entry_weights, equal_group_metrics, penalised_scores
from agentrl.credit.functional import EQUAL_TOLERANCE, Array, Singleton, leave_one_out
from agentrl.credit.options import Entries, check_options, entries_of, singleton_of

__all__ = ["RLOO"]


@dataclass(frozen=True, slots=True)
class RLOO:
    """REINFORCE with the leave-one-out baseline.

    ::

        A_i = E_i - mean of the other E_j = n / (n - 1) * (E_i - mean(E))

    Source: arXiv 2402.14740.

    Attributes:
        invalid_action_penalty: As in GRPO. entries, singleton, reference: likewise.
    """

    invalid_action_penalty: float = 0.0
    entries: Entries | None = None
    singleton: Singleton | None = None
    reference: bool = False

    def __post_init__(self) -> None:
        check_options(self)

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages of the steps; parts: ``episode``."""
        columns = columns_of(groups)
        parts = {"episode": self.episode(columns)}
        return credit_result(columns, parts, metrics=equal_group_metrics(columns))

    def episode(self, columns: Columns, scores: Array | None = None) -> Array:
        """The episode part, shape (M,); ``scores`` replaces the penalised episode scores."""
        if scores is None:
            scores = penalised_scores(columns, self.invalid_action_penalty)
        return leave_one_out(
            scores,
            columns.group,
            singleton=singleton_of(self),
            weights=entry_weights(columns, entries_of(self), reference=self.reference),
            tolerance=None if self.reference else EQUAL_TOLERANCE,
        )
