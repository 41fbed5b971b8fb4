"""GiGPO: the episode part plus a comparison of steps taken from the same state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl.core.errors import ConfigError
from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.columns import Columns, columns_of, credit_result
from agentrl.credit.episode import (
    Entries,
    check_options,
    check_words,
    equal_group_metrics,
)
from agentrl.credit.functional import (
    EQUAL_TOLERANCE,
    Array,
    Labels,
    Normaliser,
    Singleton,
    exact_partition,
    invalid_action_penalty,
    normalise,
    similarity_partition,
    step_returns,
)
from agentrl.credit.grpo import GRPO

__all__ = ["GiGPO"]


@dataclass(frozen=True, slots=True)
class GiGPO:
    """Group-in-group policy optimisation.

    ::

        G_t = r_t + discount * G_{t+1}                  return of a step
        A_E = normalise(E'; trajectories of the group)  E' = score - penalty of the step
        A_S = normalise(G'; steps with the same anchor) G' = G_t  - penalty of the step
        A   = A_E + step_weight * A_S

    Steps with equal anchors are compared inside one group only, across trajectories and repeated
    visits. A state seen once has A_S = 0 and keeps A_E. A step without an anchor is compared with
    nothing. With ``step_weight = 0`` this is GRPO.

    Source: arXiv 2505.10978, Eq. 3-8.

    Attributes:
        discount: Per-step discount of the returns, in [0, 1].
        step_weight: Weight of the step part, >= 0.
        normaliser: ``mean`` (no division) or ``mean_std``, for both parts.
        invalid_action_penalty: Taken from the step whose action was invalid, >= 0, in both parts.
            Published: 0.1 where success is worth 10.
        similarity: Compare similar texts, not only equal ones: the threshold in (0, 1), published
            0.95 (0.9 for search). ``None``: equal anchors only.
        entries: What one entry of the episode part's statistics is; ``None``: ``trajectories``, or
            ``rows`` in reference mode.
        singleton: What a group of one trajectory gets; ``zero``: 0 in both parts; ``raw``: its
            score, and revisited states are compared with each other; ``None``: ``zero``, or ``raw``
            in reference mode.
        epsilon: Added to standard deviations.
        reference: Reproduce the published code, bugs included (docs/explanation/credit.md).
    """

    discount: float = 0.95
    step_weight: float = 1.0
    normaliser: Normaliser = "mean"
    invalid_action_penalty: float = 0.0
    similarity: float | None = None
    entries: Entries | None = None
    singleton: Singleton | None = None
    epsilon: float = 1e-6
    reference: bool = False

    def __post_init__(self) -> None:
        check_options(
            "GiGPO",
            discount=(self.discount, 0.0, 1.0),
            step_weight=(self.step_weight, 0.0, math.inf),
            invalid_action_penalty=(self.invalid_action_penalty, 0.0, math.inf),
            epsilon=(self.epsilon, 0.0, 1.0),
        )
        check_words(
            "GiGPO", normaliser=self.normaliser, entries=self.entries, singleton=self.singleton
        )
        if self.similarity is not None and not 0.0 < self.similarity < 1.0:
            raise ConfigError(
                f"GiGPO: similarity must be strictly in (0, 1), got {self.similarity}; "
                "leave it out to compare equal anchors only"
            )

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages of the steps; parts: ``episode``, ``step`` (weighted); groups: ``anchor``."""
        columns = columns_of(groups)
        anchor = self.partition(columns)
        parts = {
            "episode": self.episode(columns),
            "step": self.step_weight * self.step(columns, anchor),
        }
        return credit_result(columns, parts, {"anchor": anchor}, equal_group_metrics(columns))

    @property
    def lone_get_zero(self) -> bool:
        """Whether a group of one trajectory gets 0 everywhere."""
        return (self.singleton or ("raw" if self.reference else "zero")) == "zero"

    def episode(self, columns: Columns, scores: Array | None = None) -> Array:
        """A_E, shape (M,); ``scores`` replaces E'."""
        alone = GRPO(
            normaliser=self.normaliser,
            invalid_action_penalty=self.invalid_action_penalty,
            entries=self.entries,
            singleton=self.singleton,
            epsilon=self.epsilon,
            reference=self.reference,
        )
        return alone.episode(columns, scores)

    def partition(self, columns: Columns) -> Labels:
        """Which steps share a state, shape (M,); -1 for steps that are compared with nothing."""
        rows = columns.rows
        anchors = [columns.anchor[row] for row in rows.tolist()]
        group = columns.group[rows]
        if self.similarity is None:
            labels = exact_partition(anchors, group, reference=self.reference)
        else:
            labels = similarity_partition(anchors, group, self.similarity, reference=self.reference)
        return columns.labels_on_steps(labels)

    def returns(self, columns: Columns) -> Array:
        """G' of the acts, shape (M,); 0 for other steps."""
        rows = columns.rows
        returns = step_returns(
            columns.reward[rows], columns.trajectory[rows], columns.index[rows], self.discount
        )
        penalty = invalid_action_penalty(columns.valid[rows], self.invalid_action_penalty)
        return columns.on_steps(returns - penalty)

    def step(self, columns: Columns, anchor: Labels, returns: Array | None = None) -> Array:
        """A_S, shape (M,), not yet weighted; ``returns`` replaces G'."""
        part = normalise(
            self.returns(columns) if returns is None else returns,
            anchor,
            normaliser=self.normaliser,
            ddof=1,
            epsilon=self.epsilon,
            singleton="zero",
            tolerance=None if self.reference else EQUAL_TOLERANCE,
        )
        return np.where(columns.alone, 0.0, part) if self.lone_get_zero else part
