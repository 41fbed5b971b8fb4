"""MMPO: a summary that leaves the policy unsure about the state loses advantage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.annotations import numbers
from agentrl.credit.columns import columns_of, credit_result
from agentrl.credit.episode import equal_group_metrics
from agentrl.credit.functional import Normaliser, normalise
from agentrl.credit.grpo import GRPO
from agentrl.credit.options import NOT_NEGATIVE, check_options

__all__ = ["MMPO"]


@dataclass(frozen=True, slots=True)
class MMPO:
    """Group advantages, and a penalty on summaries of high belief entropy.

    ::

        acts:       A = A_E
        summaries:  A = A_E - belief_weight * normalise(entropy; summaries of the group)

    The entropy is how unsure the model is about the task's state given the summary alone: an
    annotator probes it and leaves it on the step of kind ``summary`` as ``belief_entropy``.

    Source: the idea is arXiv 2605.30159; this form is **ours** and was not checked against it.

    Attributes:
        belief_weight: Weight of the penalty, >= 0.
        normaliser: Of both parts. invalid_action_penalty, epsilon: as in GRPO.
    """

    belief_weight: float = 0.1
    normaliser: Normaliser = "mean_std"
    invalid_action_penalty: float = 0.0
    epsilon: float = 1e-6
    needs: ClassVar[tuple[str, ...]] = ("belief_entropy",)

    def __post_init__(self) -> None:
        check_options(self, belief_weight=NOT_NEGATIVE)

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages; parts: ``episode``, ``belief``.

        Raises:
            DataError: a step of kind ``summary`` has no annotation ``belief_entropy``.
        """
        columns = columns_of(groups)
        summary = np.array([step.kind == "summary" for step in columns.steps], dtype=np.bool_)
        entropy = np.zeros(len(summary))
        entropy[summary] = numbers(columns, "belief_entropy", kind="summary")
        unsure = normalise(
            entropy,
            np.where(summary, columns.group, -1),
            normaliser=self.normaliser,
            epsilon=self.epsilon,
        )
        grpo = GRPO(
            normaliser=self.normaliser,
            invalid_action_penalty=self.invalid_action_penalty,
            epsilon=self.epsilon,
        )
        parts = {
            "episode": grpo.episode(columns),
            "belief": -self.belief_weight * np.where(columns.alone, 0.0, unsure),
        }
        metrics = equal_group_metrics(columns)
        metrics["belief_entropy_mean"] = float(entropy[summary].mean()) if summary.any() else 0.0
        return credit_result(columns, parts, metrics=metrics)
