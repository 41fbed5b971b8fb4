"""BiPACE: states are the same where the policy sees them alike, and actions are compared there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.annotations import vectors
from agentrl.credit.columns import Columns, columns_of, credit_result
from agentrl.credit.episode import episode_part, equal_group_metrics
from agentrl.credit.functional import (
    EQUAL_TOLERANCE,
    Array,
    Centroid,
    Labels,
    Normaliser,
    Singleton,
    cosine_partition,
    different_peer_advantage,
    normalise,
    number,
    q_advantage,
)
from agentrl.credit.options import Entries, check_options, lone_get_zero
from agentrl.credit.states import penalised_returns

__all__ = ["BiPACE"]

Comparison = Literal["q", "different_peer", "mean"]
COMPARISONS: tuple[Comparison, ...] = ("q", "different_peer", "mean")


@dataclass(frozen=True, slots=True)
class BiPACE:
    """Behavioural state clusters with action comparison.

    ::

        cluster = steps of one group whose hidden states point the same way (``cosine_partition``)
        q:              A_S = mean G' of the step's action - mean G' of the cluster
        different_peer: A_S = G' - mean G' of the members that acted differently
        mean:           A_S = G' - mean G' of the cluster           (GiGPO on these clusters)
        A = A_E + step_weight * A_S

    Source: arXiv 2606.25556, from its authors' description (no code was released); the reading is
    ours where the description is silent. The hidden states come from the annotation ``hidden``:
    an annotator takes them from ``Learner.score(rows, hidden_layer=...)`` at the last token of each
    step's prompt (published: layer -8 of a 7B model, -12 of 1.5B).

    Attributes:
        radius: Largest cosine distance to a cluster's centroid (published: 0.10 for 7B, 0.05 for
            1.5B). 0: equal directions only.
        comparison: ``q``, ``different_peer`` or ``mean``.
        action: What makes two actions the same: ``executed`` (their ``action_key``) or
            ``first_tokens`` (their first 8 sampled tokens).
        centroid: ``mean`` of the members, or the ``first`` member.
        discount: As in GiGPO. step_weight, normaliser (of the episode part),
            invalid_action_penalty, entries, singleton, epsilon: likewise.
        reference: Take steps in the order given, no rule for equal clusters.
    """

    radius: float = 0.05
    comparison: Comparison = "q"
    action: Literal["executed", "first_tokens"] = "executed"
    centroid: Centroid = "mean"
    discount: float = 0.95
    step_weight: float = 1.0
    normaliser: Normaliser = "mean"
    invalid_action_penalty: float = 0.0
    entries: Entries | None = None
    singleton: Singleton | None = None
    epsilon: float = 1e-6
    reference: bool = False
    needs: ClassVar[tuple[str, ...]] = ("hidden",)

    def __post_init__(self) -> None:
        check_options(
            self,
            radius=(0.0, 2.0),
            comparison=COMPARISONS,
            action=("executed", "first_tokens"),
            centroid=("mean", "first"),
        )

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages; parts: ``episode``, ``step`` (weighted); groups: ``cluster``.

        Raises:
            DataError: an act has no annotation ``hidden``, or one that is no direction.
        """
        columns = columns_of(groups)
        cluster = self.partition(columns, vectors(columns, "hidden"))
        step = self.step(columns, cluster)
        if lone_get_zero(self):
            step = np.where(columns.alone, 0.0, step)
        parts = {"episode": episode_part(columns, self), "step": self.step_weight * step}
        return credit_result(columns, parts, {"cluster": cluster}, equal_group_metrics(columns))

    def partition(self, columns: Columns, hidden: Array) -> Labels:
        """Clusters, shape (M,), of the acts' hidden states, shape (n, d)."""
        labels = cosine_partition(
            hidden,
            columns.group[columns.rows],
            self.radius,
            centroid=self.centroid,
            reference=self.reference,
        )
        return columns.labels_on_steps(labels)

    def step(self, columns: Columns, cluster: Labels) -> Array:
        """A_S, shape (M,), not yet weighted."""
        returns = penalised_returns(columns, self)
        tolerance = None if self.reference else EQUAL_TOLERANCE
        if self.comparison == "mean":
            return normalise(returns, cluster, tolerance=tolerance)
        compare = q_advantage if self.comparison == "q" else different_peer_advantage
        return compare(returns, cluster, self._actions(columns), tolerance=tolerance)

    def _actions(self, columns: Columns) -> Labels:
        if self.action == "executed":
            return number(step.action_key for step in columns.steps)
        return number(step.sample.token_ids[:8] for step in columns.steps)
