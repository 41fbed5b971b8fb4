"""SPA: a progress estimate redistributes the final reward over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.annotations import numbers
from agentrl.credit.columns import Columns, columns_of, credit_result
from agentrl.credit.episode import equal_group_metrics
from agentrl.credit.functional import (
    Array,
    Normaliser,
    episode_scores,
    leave_one_out,
)
from agentrl.credit.gigpo import GiGPO
from agentrl.credit.options import NOT_NEGATIVE, check_options
from agentrl.credit.rlanything import same_index

__all__ = ["SPA"]


@dataclass(frozen=True, slots=True)
class SPA:
    """Stepwise progress attribution without a critic.

    ::

        r_t = progress_t + grounding * [action t was valid]
        A   = A_E(r) + step_weight * normalise(G_t(r); steps compared)

    The progress of an episode should sum to its score; how far it does is reported as
    ``progress_error``. The published method feeds r_t to token PPO with a critic; comparing returns
    of steps at the same state (``anchor``) or at the same step ``index`` is ours. Progress comes
    from the annotation ``progress``: an estimator trained so that its step values sum to the score.

    In reference mode it is what the published script computes: the progress is thrown away, every
    step gets the score against the mean of the others, plus ``grounding`` where the action was
    valid and always on the last step.

    Source: github.com/WangHanLinHenry/SPA-RL-Agent.

    Attributes:
        grounding: Reward of a valid action, >= 0 (published script: 0.5).
        compare: ``anchor`` or ``index``.
        discount: Per-step discount of the redistributed returns.
        step_weight: Weight of the step part, >= 0.
        normaliser: Of both parts. epsilon: added to standard deviations.
        reference: Do what the published script does.
    """

    grounding: float = 0.0
    compare: Literal["anchor", "index"] = "anchor"
    discount: float = 1.0
    step_weight: float = 1.0
    normaliser: Normaliser = "mean"
    epsilon: float = 1e-6
    reference: bool = False
    needs: ClassVar[tuple[str, ...]] = ("progress",)

    def __post_init__(self) -> None:
        check_options(self, grounding=NOT_NEGATIVE, compare=("anchor", "index"))

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages; parts: ``episode``, ``step`` (weighted); groups: ``anchor`` or ``index``.

        Raises:
            DataError: an act has no annotation ``progress`` (outside reference mode).
        """
        columns = columns_of(groups)
        if self.reference:
            return credit_result(columns, self.published(columns))
        progress = numbers(columns, "progress")
        metrics = equal_group_metrics(columns)
        metrics["progress_error"] = _progress_error(columns, columns.on_steps(progress))
        valid = columns.valid[columns.rows]
        redistributed = replace(columns, reward=columns.on_steps(progress + self.grounding * valid))
        gigpo = GiGPO(discount=self.discount, normaliser=self.normaliser, epsilon=self.epsilon)
        same = same_index(columns) if self.compare == "index" else gigpo.partition(columns)
        parts = {
            "episode": gigpo.episode(redistributed),
            "step": self.step_weight * gigpo.step(redistributed, same),
        }
        return credit_result(columns, parts, {self.compare: same}, metrics)

    def published(self, columns: Columns) -> dict[str, Array]:
        """The parts of the published script: ``episode`` and ``grounding``."""
        first = columns.first
        scores = episode_scores(columns.reward, columns.trajectory)[first]
        others = leave_one_out(scores, columns.group[first], singleton="raw", tolerance=None)
        last = np.zeros(len(columns.act), dtype=np.bool_)
        order = np.lexsort((columns.index, columns.trajectory))
        ends = np.flatnonzero(np.diff(columns.trajectory[order], append=-1))
        last[order[ends]] = True
        return {
            "episode": others[columns.trajectory],
            "grounding": np.where(columns.act & (columns.valid | last), self.grounding, 0.0),
        }


def _progress_error(columns: Columns, progress: Array) -> float:
    """Mean over episodes of |sum of progress - score|."""
    first = columns.first
    estimated = episode_scores(progress, columns.trajectory)[first]
    actual = episode_scores(columns.reward, columns.trajectory)[first]
    return float(np.abs(estimated - actual).mean()) if len(first) else 0.0
