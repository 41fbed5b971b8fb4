"""What a learner's gradient is checked with: rows of a policy, gradients, tables of log-probs."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedModel

from agentrl.config import LearnerConfig
from agentrl.core.trajectory import Batch, Row, UpdateStats
from agentrl.learn.logprobs import TokenScores
from agentrl.learn.trl_learner import TrlLearner
from agentrl.testing.tiny_models import tiny_model

__all__ = [
    "Gradient",
    "TableLearner",
    "apart_from",
    "gradient_of",
    "relative_difference",
    "sampled_by",
]

Gradient = dict[str, torch.Tensor]


def sampled_by(learner: TrlLearner, rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows as if the learner's policy had sampled them."""
    scores = learner.score(rows, actions_only=True)
    return tuple(
        replace(row, behaviour_logprobs=tuple(values))
        for row, values in zip(rows, scores.logprobs, strict=True)
    )


def apart_from(
    rows: Sequence[Row], log_ratios: Sequence[float], rng: random.Random
) -> tuple[Row, ...]:
    """The rows as if another policy had sampled them: log-ratios to it are drawn from a few.

    With values well off the edges of a clip no rounding carries a token over an edge.
    """
    return tuple(
        replace(
            row,
            behaviour_logprobs=tuple(
                value - rng.choice(log_ratios) * sampled
                for value, sampled in zip(
                    row.behaviour_logprobs or (), row.action_mask, strict=True
                )
            ),
        )
        for row in rows
    )


def gradient_of(
    learner: TrlLearner, model: PreTrainedModel, rows: Sequence[Row]
) -> tuple[Gradient, dict[str, float]]:
    """Gradient before clipping of one update, and its metrics; the update is made."""
    gradient: Gradient = {}
    handles = []
    for name, parameter in model.named_parameters():

        def keep(one: torch.Tensor, name: str = name) -> None:
            assert one.grad is not None
            gradient[name] = one.grad.clone()  # accumulated: the last call holds all of it

        handles.append(parameter.register_post_accumulate_grad_hook(keep))
    updates: list[UpdateStats] = []
    learner.fit(iter([Batch(tuple(rows))]), on_update=updates.append)
    for handle in handles:
        handle.remove()
    return gradient, dict(updates[0].metrics)


def relative_difference(one: Gradient, other: Gradient) -> float:
    """Norm of the difference over the norm of ``other``; 0 if both are 0."""
    assert one.keys() == other.keys()
    off = sum(float((one[name].double() - other[name].double()).square().sum()) for name in one)
    size = sum(float(other[name].double().square().sum()) for name in other)
    return float((off / size) ** 0.5) if off else 0.0


@dataclass(frozen=True, slots=True)
class TableLearner:
    """The learner's loss, TRL and all, of log-probabilities that are given instead of computed.

    So that losses can be held against values from elsewhere, which come without a model.

    Attributes:
        config: The loss.
    """

    config: LearnerConfig

    def losses(self, logprobs: Sequence[Sequence[float]], batches: Sequence[Batch]) -> list[float]:
        """The loss of each batch, alone."""
        table = torch.tensor(_square(logprobs), dtype=torch.float64)
        return [one["loss"] for one in self._run(table, batches)]

    def gradient(
        self, logprobs: Sequence[Sequence[float]], rows: Sequence[Row]
    ) -> tuple[dict[str, float], list[list[float]]]:
        """Metrics of one update, and the gradient of its loss by the table of log-probabilities.

        Args:
            logprobs: Log-probabilities of the tokens after the first, of every row.
            rows: The first token id of a row is its place in the table; other ids are not read.
        """
        table = torch.tensor(_square(logprobs), dtype=torch.float64, requires_grad=True)
        (metrics,) = self._run(table, [Batch(tuple(rows))])
        found = torch.zeros_like(table) if table.grad is None else table.grad
        return metrics, found.tolist()

    def _run(self, table: torch.Tensor, batches: Sequence[Batch]) -> list[dict[str, float]]:
        model = tiny_model(vocab_size=8, dtype=torch.float64)
        learner = TrlLearner(model, None, self.config, temperature=1.0)

        def score(ids: torch.Tensor, chosen: torch.Tensor, attended: torch.Tensor) -> TokenScores:
            scores = table[ids[:, 0], : ids.shape[1] - 1][chosen[:, 1:]]
            # Something of the model, times 0: without it nothing could be differentiated.
            scores = scores + 0.0 * next(model.parameters()).sum()
            return TokenScores(scores, torch.zeros_like(scores).detach())

        learner._trainer.equip(
            self.config,
            score=score,
            reference=None,
            on_step=learner._after_step,
            clock=time.perf_counter,
        )
        updates: list[UpdateStats] = []
        learner.fit(iter(batches), on_update=updates.append)
        return [dict(one.metrics) for one in updates]


def _square(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    width = max(map(len, rows))
    return [[*row, *[0.0] * (width - len(row))] for row in rows]
