"""GiGPO: the episode part plus a comparison of steps taken from the same state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.columns import Columns, columns_of, credit_result
from agentrl.credit.episode import episode_part, equal_group_metrics
from agentrl.credit.functional import Array, Labels, Normaliser, Singleton
from agentrl.credit.options import Entries, check_options
from agentrl.credit.states import penalised_returns, state_part, state_partition

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
        check_options(self)

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages of the steps; parts: ``episode``, ``step`` (weighted); groups: ``anchor``."""
        columns = columns_of(groups)
        anchor = self.partition(columns)
        parts = {
            "episode": self.episode(columns),
            "step": self.step_weight * self.step(columns, anchor),
        }
        return credit_result(columns, parts, {"anchor": anchor}, equal_group_metrics(columns))

    def episode(self, columns: Columns, scores: Array | None = None) -> Array:
        """A_E, shape (M,); ``scores`` replaces E'."""
        return episode_part(columns, self, scores)

    def partition(self, columns: Columns) -> Labels:
        """Which steps share a state, shape (M,); -1 for steps that are compared with nothing."""
        return state_partition(columns, similarity=self.similarity, reference=self.reference)

    def returns(self, columns: Columns) -> Array:
        """G' of the acts, shape (M,); 0 for other steps."""
        return penalised_returns(columns, self)

    def step(self, columns: Columns, anchor: Labels, returns: Array | None = None) -> Array:
        """A_S, shape (M,), not yet weighted; ``returns`` replaces G'."""
        return state_part(columns, anchor, self, returns)
