"""OPID: group advantages plus, per token, what a hindsight skill would have liked better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from agentrl.core.errors import DataError
from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.annotations import annotations_of
from agentrl.credit.columns import Columns, columns_of, credit_result
from agentrl.credit.episode import episode_part, equal_group_metrics
from agentrl.credit.functional import Array, Normaliser, Singleton, teacher_term
from agentrl.credit.options import NOT_NEGATIVE, Entries, check_options
from agentrl.credit.states import state_part, state_partition

__all__ = ["OPID"]


@dataclass(frozen=True, slots=True)
class OPID:
    """On-policy self-distillation from hindsight skills.

    ::

        A_k = A_E + step_weight * A_S + episode_skill_weight * d_k(episode skill)
                                      + step_skill_weight    * d_k(step skill)
        d_k = log-prob of token k with the skill in the prompt - without it       (teacher_term)

    An annotator writes the skills, decides which step is scored with which (``route_skills``) and
    leaves the log-probabilities on the step as ``episode_teacher_logprobs`` and
    ``step_teacher_logprobs``; a step without them was not routed and gets no term. The terms are
    added to the tokens, below the step, in nats: keep the weights small.

    Source: github.com/jinyangwu/OPID; weights 0.001 each in its scripts (1 and 0 by its defaults).

    Attributes:
        episode_skill_weight: Weight of the episode skill's term. step_skill_weight: of the step's.
        normalise_teacher: Standardise each term over the batch's routed tokens first.
        clip_teacher: Bound of each term, > 0; ``None``: none.
        step_weight: Weight of GiGPO's step part (published: 0).
        discount: As in GiGPO. normaliser, invalid_action_penalty, entries, singleton, epsilon,
            reference: likewise.
    """

    episode_skill_weight: float = 0.001
    step_skill_weight: float = 0.001
    normalise_teacher: bool = False
    clip_teacher: float | None = None
    step_weight: float = 0.0
    discount: float = 0.95
    normaliser: Normaliser = "mean"
    invalid_action_penalty: float = 0.0
    entries: Entries | None = None
    singleton: Singleton | None = None
    epsilon: float = 1e-6
    reference: bool = False
    needs: ClassVar[tuple[str, ...]] = ("episode_teacher_logprobs", "step_teacher_logprobs")

    def __post_init__(self) -> None:
        check_options(
            self,
            episode_skill_weight=NOT_NEGATIVE,
            step_skill_weight=NOT_NEGATIVE,
            clip_teacher=(1e-9, math.inf),
        )

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Step advantages of GiGPO, token advantages of the skills; parts as in GiGPO."""
        columns = columns_of(groups)
        anchor = state_partition(columns, reference=self.reference)
        parts = {
            "episode": episode_part(columns, self),
            "step": self.step_weight * state_part(columns, anchor, self),
        }
        lengths = [len(step.sample.token_ids) for step in columns.steps]
        tokens = np.zeros(sum(lengths))
        metrics = equal_group_metrics(columns)
        for source, weight in (
            ("episode", self.episode_skill_weight),
            ("step", self.step_skill_weight),
        ):
            term, routed = self._term(columns, f"{source}_teacher_logprobs", len(tokens))
            tokens += weight * term
            metrics[f"{source}_teacher_token_share"] = float(routed.mean()) if len(routed) else 0.0
            metrics[f"{source}_teacher_abs_mean"] = float(np.abs(term).sum() / max(routed.sum(), 1))
        split = np.split(tokens, np.cumsum(lengths)[:-1]) if lengths else []
        per_step = [tuple(one.tolist()) for one in split]
        return credit_result(columns, parts, {"anchor": anchor}, metrics, tokens=per_step)

    def _term(self, columns: Columns, name: str, size: int) -> tuple[Array, Array]:
        """The term of every sampled token, and 1 where it was scored; shape (tokens,)."""
        teacher, old, mask = np.zeros(size), np.zeros(size), np.zeros(size)
        start = 0
        for position, step in enumerate(columns.steps):
            count = len(step.sample.token_ids)
            scored = annotations_of(step).get(name)
            if scored is not None:
                of = f"values of '{name}'"
                teacher[start : start + count] = self._per_token(columns, position, scored, of)
                of = "log-probabilities of its sample"
                own = self._per_token(columns, position, step.sample.logprobs, of)
                old[start : start + count] = own
                mask[start : start + count] = 1.0
            start += count
        term = teacher_term(
            teacher, old, mask, normalise=self.normalise_teacher, clip=self.clip_teacher
        )
        return term, mask

    @staticmethod
    def _per_token(columns: Columns, position: int, values: Any, what: str) -> Array:
        """``values`` as one finite number per sampled token of a step."""
        count = len(columns.steps[position].sample.token_ids)
        try:
            found = np.array(values, dtype=np.float64)
        except (TypeError, ValueError):
            found = np.full(count, np.nan)
        if found.shape != (count,):
            raise DataError(
                f"{columns.where(position)} has {count} sampled tokens but {found.size} {what}; "
                "score exactly the sampled tokens"
            )
        if not np.isfinite(found).all():
            raise DataError(
                f"{columns.where(position)} has {what} that are no finite numbers; score every "
                "sampled token, or leave the annotation out"
            )
        return found
