"""What one optimiser step is reported with, summed over its micro-batches."""

from __future__ import annotations

import torch

from agentrl.learn.logprobs import TokenScores
from agentrl.learn.micro_batch import MicroBatch

__all__ = ["UpdateSums"]


class UpdateSums:
    """Sums over the action tokens of an update; one transfer from the device at the end.

    Args:
        clip_low: Ratio below which a token with negative advantage is clipped.
        clip_high: Ratio above which a token with positive advantage is clipped.
    """

    def __init__(self, *, clip_low: float, clip_high: float) -> None:
        self._clip = (clip_low, clip_high)
        self._sums: list[torch.Tensor] = []
        self._ratio_sums: list[torch.Tensor] = []
        self._ratio_extremes: list[torch.Tensor] = []

    def add(self, micro: MicroBatch, scores: TokenScores, loss: torch.Tensor) -> None:
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
        if micro.behaviour is None:
            return
        log_ratios = logprobs - micro.behaviour[micro.scored]
        ratios = log_ratios.exp()
        advantages = micro.advantages[micro.scored]
        low, high = self._clip
        clipped = ((ratios < low) & (advantages < 0)) | ((ratios > high) & (advantages > 0))
        self._ratio_sums.append(
            torch.stack(
                (
                    torch.ones_like(ratios).sum(),
                    ratios.sum(),
                    clipped.to(ratios.dtype).sum(),
                    (ratios - 1 - log_ratios).sum(),
                )
            )
        )
        if len(ratios):
            self._ratio_extremes.append(torch.stack((ratios.min(), ratios.max())))

    def metrics(self) -> dict[str, float]:
        """``loss``, and means over the action tokens of the rows computed.

        ``nll`` (cross-entropy) and ``entropy`` weight tokens as the loss does. Only where there
        is a behaviour policy: ``ratio_mean``, ``ratio_min``, ``ratio_max``, ``clip_fraction`` (of
        tokens whose ratio is clipped), ``behaviour_kl`` (k3 estimate of KL(behaviour || policy)).
        """
        loss, weight, nll, entropy = torch.stack(self._sums).sum(0).tolist()
        metrics = {"loss": loss, "nll": nll / weight, "entropy": entropy / weight}
        if self._ratio_extremes:
            count, ratio, clipped, kl = torch.stack(self._ratio_sums).sum(0).tolist()
            low, high = zip(*torch.stack(self._ratio_extremes).tolist(), strict=True)
            metrics |= {
                "ratio_mean": ratio / count,
                "ratio_min": min(low),
                "ratio_max": max(high),
                "clip_fraction": clipped / count,
                "behaviour_kl": kl / count,
            }
        return metrics
