"""HiMAC: plans are compared with plans, and executions with executions of the same plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.annotations import annotations_of
from agentrl.credit.columns import Columns, columns_of, credit_result
from agentrl.credit.episode import equal_group_metrics
from agentrl.credit.functional import (
    Array,
    Labels,
    Normaliser,
    episode_scores,
    normalise,
    number,
    trajectory_weights,
)
from agentrl.credit.options import check_options

__all__ = ["HiMAC"]


@dataclass(frozen=True, slots=True)
class HiMAC:
    """Hierarchical advantages of one policy in two roles.

    ::

        macro steps (they write the plan): normalise(mean score of the plan; plans of the group)
        micro steps (they carry it out):   normalise(score; executions of the same plan)

    Every step carries the annotation ``blueprint``, which names the plan of its episode (``None``:
    one common plan), and the step that wrote the plan has ``role`` ``macro``.

    Source: the idea is arXiv 2603.00977; this form is **ours** and was not checked against it.

    Attributes:
        train: Which role learns: ``both``, or one while the other is frozen (its steps get 0).
        normaliser: ``mean`` or ``mean_std``, for both roles.
        epsilon: Added to standard deviations.
    """

    train: Literal["both", "macro", "micro"] = "both"
    normaliser: Normaliser = "mean"
    epsilon: float = 1e-6
    needs: ClassVar[tuple[str, ...]] = ("blueprint",)

    def __post_init__(self) -> None:
        check_options(self, train=("both", "macro", "micro"))

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages; parts: ``macro``, ``micro``; groups: ``blueprint``."""
        columns = columns_of(groups)
        marks = [annotations_of(step) for step in columns.steps]
        macro = np.array([one.get("role") == "macro" for one in marks], dtype=np.bool_)
        names = [repr(one.get("blueprint")) for one in marks]
        plan = number(zip(columns.group.tolist(), names, strict=True))
        scores = episode_scores(columns.reward, columns.trajectory)
        once = trajectory_weights(columns.trajectory)
        parts = {
            "macro": np.where(macro, self._plans(columns, plan, scores, once), 0.0),
            "micro": np.where(macro, 0.0, self._compare(scores, plan, once)),
        }
        for role, part in parts.items():
            if self.train not in ("both", role):
                parts[role] = np.zeros_like(part)
        return credit_result(columns, parts, {"blueprint": plan}, equal_group_metrics(columns))

    def _plans(self, columns: Columns, plan: Labels, scores: Array, once: Array) -> Array:
        """Mean score of each step's plan against the plans of its group, each counting once."""
        executions = np.bincount(plan, weights=once)
        mean = np.bincount(plan, weights=once * scores) / executions
        return self._compare(mean[plan], columns.group, once / executions[plan])

    def _compare(self, values: Array, labels: Labels, weights: Array) -> Array:
        return normalise(
            values, labels, normaliser=self.normaliser, epsilon=self.epsilon, weights=weights
        )
