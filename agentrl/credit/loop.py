"""LOOP: leave-one-out over whole trajectories, and no gradient where there is no signal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.columns import columns_of, credit_result
from agentrl.credit.episode import equal_group_metrics
from agentrl.credit.functional import (
    EQUAL_TOLERANCE,
    Array,
    Labels,
    Singleton,
    deviations,
    episode_scores,
    informative,
    leave_one_out,
    normalise,
)
from agentrl.credit.options import NOT_NEGATIVE, check_options

__all__ = ["LOOP"]


@dataclass(frozen=True, slots=True)
class LOOP:
    """Leave-one-out PPO's advantages.

    ::

        A_i = R_i - mean of the other R_j      (baseline "mean": minus the mean of all)
        divided by max(std_0, 1e-7) with ``divide``;  A = 0 where |A| < threshold;  A += bonus

    Its loss, ``functional.loop_loss``, clips the ratio symmetrically to [1/(1+e), 1+e], e = 0.1:
    ``learner.loss: loop``.

    Source: arXiv 2502.01600, code apple/ml-loop. The bonus is called ``rloo_kl_lambda`` there, but
    is a constant added to every advantage.

    Attributes:
        baseline: ``leave_one_out`` or ``mean``.
        divide: Divide by the spread of the group.
        threshold: Trajectories with a smaller |A| are given 0, >= 0; the loss can leave them out.
        positive_only: Keep only trajectories with A >= threshold.
        bonus: Added to the advantages that are kept.
        singleton: What a group of one gets. reference: no rule for equal groups.
    """

    baseline: Literal["leave_one_out", "mean"] = "leave_one_out"
    divide: bool = False
    threshold: float = 0.01
    positive_only: bool = False
    bonus: float = 0.0
    singleton: Singleton = "zero"
    reference: bool = False
    published_learner: ClassVar[Mapping[str, Any]] = {"loss": "loop"}

    def __post_init__(self) -> None:
        check_options(
            self,
            threshold=NOT_NEGATIVE,
            bonus=(-math.inf, math.inf),
            baseline=("leave_one_out", "mean"),
        )

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages of the steps; parts: ``episode``; metric ``filtered_share``."""
        columns = columns_of(groups)
        first = columns.first
        scores = episode_scores(columns.reward, columns.trajectory)[first]
        raw = self.advantages(scores, columns.group[first])
        kept, _ = informative(raw, threshold=self.threshold, positive_only=self.positive_only)
        size = raw if self.positive_only else np.abs(raw)
        above = np.zeros(len(raw), dtype=np.bool_)
        above[kept] = size[kept] >= self.threshold
        part = np.where(above, raw + self.bonus, 0.0)[columns.trajectory]
        metrics = equal_group_metrics(columns)
        metrics["filtered_share"] = 1.0 - float(above.mean()) if len(above) else 0.0
        return credit_result(columns, {"episode": part}, metrics=metrics)

    def advantages(self, scores: Array, group: Labels) -> Array:
        """Advantage of each trajectory before filter and bonus.

        Args:
            scores: Score of each trajectory, shape (trajectories,).
            group: Number of its group, integers, shape (trajectories,).
        """
        tolerance = None if self.reference else EQUAL_TOLERANCE
        if self.baseline == "leave_one_out":
            centred = leave_one_out(scores, group, singleton=self.singleton, tolerance=tolerance)
        else:
            centred = normalise(scores, group, singleton=self.singleton, tolerance=tolerance)
        if not self.divide:
            return centred
        return np.asarray(centred / np.maximum(deviations(scores, group, ddof=0), 1e-7))
