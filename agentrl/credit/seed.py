"""SEED: the policy also learns to write the skills it is distilled from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.annotations import numbers
from agentrl.credit.columns import columns_of, credit_result
from agentrl.credit.episode import equal_group_metrics
from agentrl.credit.functional import Normaliser, normalise
from agentrl.credit.grpo import GRPO
from agentrl.credit.options import NOT_NEGATIVE, check_options

__all__ = ["SEED"]


@dataclass(frozen=True, slots=True)
class SEED:
    """Self-distillation with the policy as its own analyst: the advantage's side.

    ::

        acts and summaries: A = A_E                                            (GRPO)
        steps of kind skill: A = skill_weight * normalise(skill_reward; skills of the group)

    What distils the skills is a term of the loss, ``functional.gated_distillation``, with
    coefficient 0.01 (``learner.distillation: {kind: gated}``); the reward of a skill is
    ``functional.skill_reward``, which an annotator leaves on the step as ``skill_reward``.

    Source: github.com/jinyangwu/SEED. How its skill tokens are batched was not seen: comparing the
    skills of one group with each other is our reading.

    Attributes:
        skill_weight: Weight of the skills' advantages, >= 0.
        normaliser: As in GRPO. invalid_action_penalty, reference: likewise.
    """

    skill_weight: float = 1.0
    normaliser: Normaliser = "mean_std"
    invalid_action_penalty: float = 0.0
    reference: bool = False
    needs: ClassVar[tuple[str, ...]] = ("skill_reward",)
    published_learner: ClassVar[Mapping[str, Any]] = {"distillation": {"kind": "gated"}}

    def __post_init__(self) -> None:
        check_options(self, skill_weight=NOT_NEGATIVE)

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages; parts: ``episode``, ``skill``.

        Raises:
            DataError: a step of kind ``skill`` has no annotation ``skill_reward``.
        """
        columns = columns_of(groups)
        skill = np.array([step.kind == "skill" for step in columns.steps], dtype=np.bool_)
        rewards = np.zeros(len(skill))
        rewards[skill] = numbers(columns, "skill_reward", kind="skill")
        written = normalise(rewards, np.where(skill, columns.group, -1), normaliser=self.normaliser)
        grpo = GRPO(
            normaliser=self.normaliser,
            invalid_action_penalty=self.invalid_action_penalty,
            reference=self.reference,
        )
        parts = {
            "episode": np.where(skill, 0.0, grpo.episode(columns)),
            "skill": self.skill_weight * np.where(columns.alone, 0.0, written),
        }
        return credit_result(columns, parts, metrics=equal_group_metrics(columns))
