"""Good episodes are learnt from again, with decaying weight (SPEAR)."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from agentrl.core.strategy import Imitated, Played, Recall
from agentrl.core.trajectory import CreditResult, Group
from agentrl.strategies.options import share, whole
from agentrl.strategies.signal import scores

__all__ = ["SelfImitation"]

_LEAST_ADVANTAGE = 1e-6


class SelfImitation:
    """Keeps trajectories with a positive advantage and adds some of them to each iteration.

    A trajectory with reward R of age a (iterations) is added with one advantage for all its steps,
    if that is positive::

        A = w_a (R - median of the last group means)
        w_a = coefficient * decay^(a - 1) * ramp
        ramp = (1 - cos(pi * min(iteration / warmup, 1))) / 2, or 1 without warmup

    So an episode that was better than its siblings counts for less as the policy catches up, and
    not at all when it is no longer better than what is usual. Tokens keep the log-probabilities
    of the policy mu that sampled them: the loss sees the ratio ``pi / mu``, clipped.

    What is biased: all but good episodes are left out, on purpose; the ratio is per token; the
    baseline is one of all tasks, so easy ones are imitated more than hard ones. Added trajectories
    count in the batch's mean, so they take weight from fresh ones. A KL term, if the learner has
    one, holds for them as well (SPEAR's replay loss has none).

    Source: SPEAR (code TencentYoutuResearch/SPEAR, read): size 2048 rows, tolerance 10 steps, ramp
    over 200. There a weight is either recalibrated by the median or decayed; here it is both
    (``decay=1`` leaves the recalibration alone), by trajectory instead of by row. Its division by
    the median standard deviation and its Clip-cov are not taken.

    Args:
        size: Most trajectories kept, the newest.
        per_iteration: Most that are added to one.
        max_age: Iterations after which one is forgotten.
        coefficient: Weight of a fresh one. decay: factor for each iteration of age, in (0, 1].
        warmup: Iterations over which the weight rises; 0: none.
        baselines: Group means that the median is taken of.

    Raises:
        ConfigError: an option is out of range.
    """

    def __init__(
        self,
        *,
        size: int = 512,
        per_iteration: int = 16,
        max_age: int = 10,
        coefficient: float = 1.0,
        decay: float = 0.8,
        warmup: int = 0,
        baselines: int = 1024,
    ) -> None:
        name = "self_imitation"
        self._size = whole(name, "size", size, least=1)
        self._per_iteration = whole(name, "per_iteration", per_iteration, least=1)
        self._max_age = whole(name, "max_age", max_age, least=1)
        self._coefficient = share(name, "coefficient", coefficient, least=1e-9, most=100.0)
        self._decay = share(name, "decay", decay, least=1e-6)
        self._warmup = whole(name, "warmup", warmup, least=0)
        self._baselines = whole(name, "baselines", baselines, least=1)
        self._kept: list[tuple[str, int, float]] = []
        self._means: list[float] = []

    def weight(self, iteration: int, age: int) -> float:
        """The weight of a trajectory of an age in an iteration of the stage."""
        ramp = 1.0
        if self._warmup:
            ramp = (1.0 - math.cos(math.pi * min(iteration / self._warmup, 1.0))) / 2.0
        return self._coefficient * self._decay ** (age - 1) * ramp

    def add(self, iteration: int, *, seed: int, recall: Recall) -> Sequence[Imitated]:
        if not self._means:
            return ()
        usual = median(self._means)
        worth = []
        for name, born, reward in self._kept:
            age = iteration - born
            advantage = self.weight(iteration, max(age, 1)) * (reward - usual)
            if age <= self._max_age and advantage > _LEAST_ADVANTAGE:
                worth.append((name, advantage))
        rng = random.Random(seed)
        drawn = rng.sample(worth, min(self._per_iteration, len(worth)))
        return [Imitated(recall(name), advantage) for name, advantage in sorted(drawn)]

    def observe(
        self, played: Sequence[Played], groups: Sequence[Group], credit: CreditResult
    ) -> Mapping[str, float]:
        """``kept``: trajectories. ``baseline``: what is usual, where it is known."""
        iteration = max((one.place.iteration for one in played), default=0)
        flat = [one for group in groups for one in group.trajectories]
        for one, advantages in zip(flat, credit.step_advantages, strict=True):
            if advantages and one.reward is not None and fmean(advantages) > _LEAST_ADVANTAGE:
                self._kept.append((one.id, iteration, one.reward))
        young = [one for one in self._kept if iteration - one[1] < self._max_age]
        self._kept = young[-self._size :]
        means = [fmean(values) for group in groups if (values := scores(group))]
        self._means = [*self._means, *means][-self._baselines :]
        found = {"kept": float(len(self._kept))}
        if self._means:
            found["baseline"] = median(self._means)
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"kept": [list(one) for one in self._kept], "means": list(self._means)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._kept = [(name, born, reward) for name, born, reward in state["kept"]]
        self._means = list(state["means"])
