"""Dr.GRPO: GRPO without the division by the spread, which favours easy and hard tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.columns import columns_of, credit_result
from agentrl.credit.episode import episode_part, equal_group_metrics
from agentrl.credit.functional import Normaliser, Singleton
from agentrl.credit.options import Entries, check_options

__all__ = ["DrGRPO"]


@dataclass(frozen=True, slots=True)
class DrGRPO:
    """``A = E - mean(E)`` over the trajectories of the group.

    Source: arXiv 2503.20783. Its other half, no division of the loss by an answer's own length, is
    the learner's choice of weighting.

    Attributes:
        invalid_action_penalty: As in GRPO. entries, singleton, reference: likewise.
    """

    invalid_action_penalty: float = 0.0
    entries: Entries | None = None
    singleton: Singleton | None = None
    reference: bool = False
    normaliser: ClassVar[Normaliser] = "mean"
    epsilon: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        check_options(self)

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages of the steps; parts: ``episode``."""
        columns = columns_of(groups)
        metrics = equal_group_metrics(columns)
        return credit_result(columns, {"episode": episode_part(columns, self)}, metrics=metrics)
