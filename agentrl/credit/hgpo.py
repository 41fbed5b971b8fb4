"""HGPO: steps are compared with steps that also share the states before, the deeper the more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.columns import Columns, columns_of, credit_result
from agentrl.credit.episode import episode_part, equal_group_metrics
from agentrl.credit.functional import (
    EQUAL_TOLERANCE,
    Array,
    Labels,
    Normaliser,
    Singleton,
    cluster_sizes,
    context_partition,
    level_contributions,
    level_weights,
    normalise,
)
from agentrl.credit.options import Entries, check_options, lone_get_zero
from agentrl.credit.states import penalised_returns, state_partition

__all__ = ["HGPO"]


@dataclass(frozen=True, slots=True)
class HGPO:
    """Hierarchy-of-groups policy optimisation.

    Level k = 1 .. history_length + 1 compares steps of one group whose last k states agree
    (``context_partition``); level 0 is the whole group::

        a_k = normalise(G'; steps of the same context of length k)     ddof 0, clusters of >= 2
        a_0 = A_E                                                      GiGPO's episode part
        A   = sum_k w_k a_k / sum_k w_k        w_k = (k + 1)^alpha, over the levels with a cluster

    A level where a step is alone is left out; a step that is alone on every level keeps a_0. Early
    steps, which have no long context, lack the deep levels.

    Source: arXiv 2602.22817. The published code leaves level 0 out and also drops every level whose
    value happens to be 0, so agreement at depth counts as no information
    (docs/explanation/credit.md).

    Attributes:
        history_length: States before the current one that may count, >= 0 (published: 2 or 4, the
            length of the prompt's window).
        discount: Per-step discount of the returns, in [0, 1].
        alpha: How much longer contexts weigh; 0: all levels alike.
        base_group: Whether level 0 takes part; ``None``: yes, no in reference mode.
        normaliser: ``mean`` (no division) or ``mean_std`` (as published).
        invalid_action_penalty: Taken from the step whose action was invalid, >= 0.
        similarity: As in GiGPO.
        entries: As in GiGPO, for level 0. singleton: likewise.
        epsilon: Added to standard deviations (and, in reference mode, to the sum of weights).
        drop_zero_levels: Leave levels of value 0 out; ``None``: no, yes in reference mode.
        reference: Reproduce the published code, bugs included.
    """

    history_length: int = 2
    discount: float = 0.95
    alpha: float = 1.0
    base_group: bool | None = None
    normaliser: Normaliser = "mean"
    invalid_action_penalty: float = 0.0
    similarity: float | None = None
    entries: Entries | None = None
    singleton: Singleton | None = None
    epsilon: float = 1e-6
    drop_zero_levels: bool | None = None
    reference: bool = False

    def __post_init__(self) -> None:
        check_options(self, history_length=(0, 1000), alpha=(-100.0, 100.0))

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages; parts: ``episode`` and ``level_k``; groups: ``context_k``."""
        columns = columns_of(groups)
        contexts = self.contexts(columns)
        names = ["episode", *(f"level_{k}" for k in range(1, len(contexts) + 1))]
        parts = dict(zip(names, self.levels(columns, contexts), strict=True))
        partitions = {f"context_{k}": labels for k, labels in enumerate(contexts, start=1)}
        return credit_result(columns, parts, partitions, equal_group_metrics(columns))

    def contexts(self, columns: Columns) -> list[Labels]:
        """Partitions by the last 1 .. history_length + 1 states, each of shape (M,)."""
        rows = columns.rows
        states = state_partition(columns, similarity=self.similarity, reference=self.reference)
        found = context_partition(
            states[rows], columns.trajectory[rows], columns.index[rows], self.history_length + 1
        )
        return [columns.labels_on_steps(labels) for labels in found]

    def returns(self, columns: Columns) -> Array:
        """G' of the acts, shape (M,); 0 for other steps."""
        return penalised_returns(columns, self)

    def levels(self, columns: Columns, contexts: Sequence[Labels]) -> Array:
        """Contributions of level 0, 1, ..., shape (levels, M); they sum to the advantage."""
        returns = self.returns(columns)
        drop_zeros = self.reference if self.drop_zero_levels is None else self.drop_zero_levels
        base = not self.reference if self.base_group is None else self.base_group
        values = [episode_part(columns, self)]
        counted = [np.full(len(columns.act), base)]
        for labels in contexts:
            values.append(
                normalise(
                    returns,
                    labels,
                    normaliser=self.normaliser,
                    ddof=0,
                    epsilon=self.epsilon,
                    tolerance=None if self.reference else EQUAL_TOLERANCE,
                )
            )
            counted.append(cluster_sizes(labels) > 1)
        stacked, present = np.array(values), np.array(counted)
        if drop_zeros:
            present &= np.abs(stacked) >= 1e-6
        if lone_get_zero(self):
            stacked = np.where(columns.alone, 0.0, stacked)
        return level_contributions(
            stacked,
            present,
            level_weights(range(len(values)), self.alpha),
            epsilon=self.epsilon if self.reference else 0.0,
        )
