"""GRPO: every step of a trajectory gets the trajectory's score relative to its group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.columns import Columns, columns_of, credit_result
from agentrl.credit.episode import episode_part, equal_group_metrics
from agentrl.credit.functional import Array, Normaliser, Singleton
from agentrl.credit.options import Entries, check_options

__all__ = ["GRPO"]


@dataclass(frozen=True, slots=True)
class GRPO:
    """Group-relative policy optimisation.

    ::

        A = (E - mean(E)) / (std(E) + epsilon)      over the trajectories of the group, ddof 1

    Source: arXiv 2402.03300, Sec. 4.1. With one answer per trajectory it is exactly that; in many
    steps every step of a trajectory gets the same value.

    Attributes:
        normaliser: ``mean_std`` (as published) or ``mean`` (no division).
        invalid_action_penalty: Taken from the score of the step whose action was invalid, >= 0.
        entries: What one entry of the group's statistics is; ``None``: ``trajectories``, or
            ``rows`` in reference mode.
        singleton: What a group of one trajectory gets; ``None``: ``zero``, or ``raw`` in reference
            mode.
        epsilon: Added to the standard deviation.
        reference: Reproduce the published code, bugs included (docs/explanation/credit.md).
    """

    normaliser: Normaliser = "mean_std"
    invalid_action_penalty: float = 0.0
    entries: Entries | None = None
    singleton: Singleton | None = None
    epsilon: float = 1e-6
    reference: bool = False

    def __post_init__(self) -> None:
        check_options(self)

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages of the steps; parts: ``episode``."""
        columns = columns_of(groups)
        metrics = equal_group_metrics(columns)
        return credit_result(columns, {"episode": self.episode(columns)}, metrics=metrics)

    def episode(self, columns: Columns, scores: Array | None = None) -> Array:
        """The episode part, shape (M,); ``scores`` replaces the penalised episode scores."""
        return episode_part(columns, self, scores)
