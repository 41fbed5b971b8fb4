"""R3L: failed episodes are retried from their turning point; only what differs is credited."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.annotations import annotations_of
from agentrl.credit.columns import columns_of, credit_result
from agentrl.credit.episode import equal_group_metrics
from agentrl.credit.functional import (
    Array,
    Labels,
    Singleton,
    amplified,
    episode_scores,
    equal_groups,
    soft_mean,
)
from agentrl.credit.options import NOT_NEGATIVE, check_options

__all__ = ["R3L"]


@dataclass(frozen=True, slots=True)
class R3L:
    """Reflect, retry, reinforce: the advantage's side.

    ::

        b = mean of the group's scores          (``soft``: tau * log mean exp(score / tau))
        A = 1                if score >= best
        A = alpha (score-b)  if score >= b
        A = score - b        otherwise
        A = 0 on steps annotated ``prefix``;   A = 1 on all steps of an ``exemplar``

    Who runs the retry annotates: ``prefix`` on the steps before the pivot, in the retry (they were
    replayed) and in its base episode; ``exemplar`` on every step of a verified reflection or guided
    retry, which then does not count in the group. Its loss, ``functional.opmd``, has no ratio:
    ``learner.loss: no_ratio``.

    Source: github.com/shiweijiezero/R3L. There a group in which all succeed has A = 1 everywhere
    and a lone episode has b = 0; here both give 0 outside reference mode.

    Attributes:
        baseline: ``mean`` or ``soft``. tau: of the soft mean, > 0.
        alpha: Amplification of what is above the baseline, >= 0.
        best: The largest score the task gives.
        singleton: What a group of one gets; ``None``: ``zero``, or ``raw`` in reference mode.
        reference: Reproduce the published code.
    """

    baseline: Literal["mean", "soft"] = "mean"
    tau: float = 1.0
    alpha: float = 3.0
    best: float = 1.0
    singleton: Singleton | None = None
    reference: bool = False
    published_learner: ClassVar[Mapping[str, Any]] = {"loss": "no_ratio"}

    def __post_init__(self) -> None:
        check_options(
            self,
            tau=(1e-9, math.inf),
            alpha=NOT_NEGATIVE,
            best=(-math.inf, math.inf),
            baseline=("mean", "soft"),
        )

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages; parts: ``episode``."""
        columns = columns_of(groups)
        marks = [annotations_of(step) for step in columns.steps]
        prefix = np.array([bool(one.get("prefix")) for one in marks], dtype=np.bool_)
        exemplar = np.array([bool(one.get("exemplar")) for one in marks], dtype=np.bool_)
        scores = episode_scores(columns.reward, columns.trajectory)
        counted = np.zeros(len(scores), dtype=np.bool_)
        counted[columns.first] = True
        counted &= ~exemplar
        advantage = np.zeros(len(scores))
        advantage[counted] = self.advantages(scores[counted], columns.group[counted])
        part = advantage[columns.first][columns.trajectory]
        part = np.where(exemplar, 1.0, np.where(prefix, 0.0, part))
        metrics = equal_group_metrics(columns)
        metrics["prefix_share"] = float(prefix.mean()) if len(prefix) else 0.0
        return credit_result(columns, {"episode": part}, metrics=metrics)

    def advantages(self, scores: Array, group: Labels) -> Array:
        """Advantage of each trajectory, shape (trajectories,)."""
        baseline = self.baselines(scores, group)
        found = amplified(scores, baseline, alpha=self.alpha, best=self.best)
        if self.reference:
            return found
        silent = equal_groups(scores, group)
        if (self.singleton or "zero") == "raw":
            silent &= np.bincount(group)[group] > 1 if len(group) else silent
        return np.where(silent, 0.0, found)

    def baselines(self, scores: Array, group: Labels) -> Array:
        """The baseline b of each trajectory's group; 0 for a group of one."""
        found = np.zeros(len(scores))
        order = np.argsort(group, kind="stable")
        for members in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
            if len(members) > 1:
                x = scores[members]
                found[members] = x.mean() if self.baseline == "mean" else soft_mean(x, self.tau)
        return found
