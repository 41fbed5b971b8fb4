"""Dr.GRPO: GRPO without the division by the spread, which favours easy and hard tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.episode import Entries
from agentrl.credit.functional import Singleton
from agentrl.credit.grpo import GRPO

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

    def __post_init__(self) -> None:
        self.grpo  # noqa: B018  (checks the options)

    @property
    def grpo(self) -> GRPO:
        """The GRPO that this is."""
        return GRPO(
            normaliser="mean",
            invalid_action_penalty=self.invalid_action_penalty,
            entries=self.entries,
            singleton=self.singleton,
            reference=self.reference,
        )

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages of the steps; parts: ``episode``."""
        return self.grpo.assign(groups)
