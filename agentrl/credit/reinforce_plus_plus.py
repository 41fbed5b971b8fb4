"""REINFORCE++ and its baseline form: advantages brought to one scale over the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.columns import Columns, columns_of, credit_result
from agentrl.credit.episode import episode_part, equal_group_metrics
from agentrl.credit.functional import (
    EQUAL_TOLERANCE,
    Array,
    Normaliser,
    Singleton,
    invalid_action_penalty,
    step_returns,
    whiten,
)
from agentrl.credit.options import Entries, check_options

__all__ = [
    "REINFORCEPlusPlus",
    "REINFORCEPlusPlusBaseline",
    "returns_everywhere",
    "sampled_tokens",
]


def sampled_tokens(columns: Columns) -> Array:
    """How many tokens each step sampled, shape (M,)."""
    return np.array([len(step.sample.token_ids) for step in columns.steps], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class REINFORCEPlusPlus:
    """Returns whitened over all sampled tokens of the batch; no groups.

    ::

        A = (G_t - mean) / sqrt(var + 1e-8)      over the tokens of the batch

    Groups do not matter, so group size 1 is fine. Steps that are no act take part with the return
    of the next act after them (the policy's summaries serve what follows).

    Source: arXiv 2501.03262. There the whole score sits on the last token of an answer; in many
    steps that is the return of the step.

    Attributes:
        discount: Per-step discount of the returns.
        invalid_action_penalty: Taken from the return of the step whose action was invalid.
    """

    discount: float = 1.0
    invalid_action_penalty: float = 0.0
    scope: ClassVar[str] = "batch"

    def __post_init__(self) -> None:
        check_options(self)

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages of the steps; parts: ``return``."""
        columns = columns_of(groups)
        returns = returns_everywhere(columns, self.discount)
        returns -= invalid_action_penalty(columns.valid, self.invalid_action_penalty)
        parts = {"return": whiten(returns, sampled_tokens(columns))}
        return credit_result(columns, parts, metrics=equal_group_metrics(columns))


@dataclass(frozen=True, slots=True)
class REINFORCEPlusPlusBaseline:
    """Scores minus their group's mean, then brought to one scale over the batch.

    ::

        x = E - mean(E of the group)        A = x / sqrt(var of x over the batch's tokens + 1e-8)

    The published form also subtracts the mean over tokens, which is not 0 when lengths differ; that
    gives groups of equal scores an advantage, so it is done in reference mode only.

    Source: arXiv 2501.03262.

    Attributes:
        invalid_action_penalty: As in GRPO. entries, singleton, reference: likewise.
    """

    invalid_action_penalty: float = 0.0
    entries: Entries | None = None
    singleton: Singleton | None = None
    reference: bool = False
    normaliser: ClassVar[Normaliser] = "mean"
    epsilon: ClassVar[float] = 0.0
    scope: ClassVar[str] = "batch"

    def __post_init__(self) -> None:
        check_options(self)

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages of the steps; parts: ``episode``."""
        columns = columns_of(groups)
        parts = {"episode": self.episode(columns, sampled_tokens(columns))}
        return credit_result(columns, parts, metrics=equal_group_metrics(columns))

    def episode(self, columns: Columns, tokens: Array, scores: Array | None = None) -> Array:
        """The episode part, shape (M,).

        Args:
            columns: The steps.
            tokens: Sampled tokens of each step, shape (M,).
            scores: Replaces the penalised episode scores, shape (M,).
        """
        centred = episode_part(columns, self, scores)
        tolerance = None if self.reference else EQUAL_TOLERANCE
        return whiten(centred, tokens, shift=self.reference, tolerance=tolerance)


def returns_everywhere(columns: Columns, discount: float) -> Array:
    """Return of each act; a step that is no act has the return of the next act, or 0."""
    rows = columns.rows
    returns = columns.on_steps(
        step_returns(columns.reward[rows], columns.trajectory[rows], columns.index[rows], discount)
    )
    running, before = 0.0, -1
    for k in np.lexsort((columns.index, columns.trajectory))[::-1].tolist():
        if columns.trajectory[k] != before:
            running, before = 0.0, int(columns.trajectory[k])
        if columns.act[k]:
            running = float(returns[k])
        returns[k] = running
    return returns
