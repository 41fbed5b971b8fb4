"""What one optimiser step is reported with, summed over its micro-batches."""

from __future__ import annotations

import torch

from agentrl.learn.logprobs import TokenScores
from agentrl.learn.micro_batch import MicroBatch
from agentrl.learn.objectives import Surrogate, limited

__all__ = ["UpdateSums"]


class UpdateSums:
    """Sums over the action tokens of an update; one transfer from the device at the end."""

    def __init__(self) -> None:
        self._sums: list[torch.Tensor] = []
        self._ratio_sums: list[torch.Tensor] = []
        self._ratio_extremes: list[torch.Tensor] = []
        self._shares: tuple[str, ...] = ()

    def add(
        self, micro: MicroBatch, scores: TokenScores, surrogate: Surrogate, loss: torch.Tensor
    ) -> None:
        """Count one micro-batch. ``scores`` are of its action tokens, without gradient."""
        weights = micro.weights[micro.scored]
        logprobs = scores.logprobs
        self._sums.append(
            torch.stack(
                (
                    loss,
                    weights.sum(),
                    -(weights * logprobs).sum(),
                    (weights * scores.entropies).sum(),
                )
            )
        )
        if micro.behaviour is None or surrogate.log_ratios is None:
            return
        assert surrogate.clipped is not None
        apart = logprobs - micro.behaviour[micro.scored]
        ratios = surrogate.log_ratios[micro.scored].exp()
        self._shares = tuple(surrogate.shares)
        counted = (
            torch.ones_like(ratios),
            ratios,
            surrogate.clipped[micro.scored],
            limited(apart).exp() - 1 - apart,
            *(one[micro.scored] for one in surrogate.shares.values()),
        )
        self._ratio_sums.append(torch.stack([one.to(ratios.dtype).sum() for one in counted]))
        if len(ratios):
            self._ratio_extremes.append(torch.stack((ratios.min(), ratios.max())))

    def metrics(self) -> dict[str, float]:
        """``loss``, and means over the action tokens of the rows computed.

        ``nll`` (cross-entropy) and ``entropy`` weight tokens as the loss does. Only where there
        is a behaviour policy: ``ratio_mean``, ``ratio_min``, ``ratio_max`` of the ratio that the
        objective bounds, ``clip_fraction`` (of tokens that a clip leaves without gradient),
        ``behaviour_kl`` (k3 estimate of KL(behaviour || policy)) and the objective's own shares.
        """
        loss, weight, nll, entropy = torch.stack(self._sums).sum(0).tolist()
        metrics = {"loss": loss, "nll": nll / weight, "entropy": entropy / weight}
        if self._ratio_extremes:
            count, *sums = torch.stack(self._ratio_sums).sum(0).tolist()
            low, high = zip(*torch.stack(self._ratio_extremes).tolist(), strict=True)
            names = ("ratio_mean", "clip_fraction", "behaviour_kl", *self._shares)
            metrics |= {name: one / count for name, one in zip(names, sums, strict=True)}
            metrics |= {"ratio_min": min(low), "ratio_max": max(high)}
        return metrics
