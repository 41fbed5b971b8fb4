"""A curriculum of tasks that are sometimes solved (VCRL)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.core.strategy import Place, Played, Verdict
from agentrl.core.trajectory import CreditResult, Group
from agentrl.strategies.options import chosen, share, whole
from agentrl.strategies.signal import normalised_variance, scores

__all__ = ["Variance"]


class Variance:
    """Keeps groups whose rewards vary enough; in place of the others plays tasks known to vary.

    With p the variance of a group's rewards over the largest possible (``normalised_variance``;
    for k successes of n: ``k (n - k) / (h (n - h))``, h = n // 2)::

        p >= threshold    kept, and the task's priority moves: q <- momentum q + (1 - momentum) p
        p <  threshold    a task of the bank is played instead, drawn with chances q

    Tasks whose priority falls below the threshold leave the bank. A place is refilled at most
    ``refills`` times; the last attempt is kept or dropped as it is told.

    Source: VCRL (arXiv 2509.19803), of which only a review was read: threshold, momentum and the
    size of the bank are not known, and the defaults are ours. What is kept is no fair sample of the
    tasks, on purpose.

    Args:
        threshold: Smallest p that is kept, above 0. With groups of 8 one success has p = 0.44.
        momentum: How slowly priorities follow.
        size: Most tasks in the bank.
        refills: Groups played at a place after the first, at most.
        last: What becomes of the last attempt below the threshold: ``keep`` or ``drop``.

    Raises:
        ConfigError: an option is out of range.
    """

    def __init__(
        self,
        *,
        threshold: float = 0.4,
        momentum: float = 0.5,
        size: int = 512,
        refills: int = 1,
        last: str = "drop",
    ) -> None:
        self._threshold = share("variance", "threshold", threshold, least=1e-6)
        self._momentum = share("variance", "momentum", momentum, most=0.999)
        self._size = whole("variance", "size", size, least=1)
        self._refills = whole("variance", "refills", refills, least=0)
        self._drops = chosen("variance", "last", last, ("keep", "drop")) == "drop"
        self._bank: dict[str, float] = {}

    def judge(self, group: Group, place: Place) -> Verdict:
        values = scores(group)
        if len(values) < 2 or normalised_variance(values) >= self._threshold:
            return "keep"
        if place.attempt < self._refills and self._others(group):
            return "again"
        return "drop" if self._drops else "keep"

    def instead(self, group: Group, place: Place, *, seed: int) -> str | None:
        others = self._others(group)
        if not others:
            return None
        return random.Random(seed).choices(others, [self._bank[one] for one in others])[0]

    def _others(self, group: Group) -> list[str]:
        return sorted(one for one in self._bank if one != group.task.id)

    def observe(
        self, played: Sequence[Played], groups: Sequence[Group], credit: CreditResult
    ) -> Mapping[str, float]:
        """``mean``: of p over all groups. ``below``: the threshold. ``bank``: tasks in it."""
        found = []
        for one in played:
            values = scores(one.group)
            if len(values) < 2:
                continue
            now, task = normalised_variance(values), one.group.task.id
            found.append(now)
            old = self._bank.get(task)
            if old is not None:
                self._bank[task] = self._momentum * old + (1.0 - self._momentum) * now
            elif now >= self._threshold:
                self._bank[task] = now
        best = sorted(self._bank.items(), key=lambda item: (-item[1], item[0]))[: self._size]
        self._bank = {task: value for task, value in best if value >= self._threshold}
        return {
            "mean": sum(found) / len(found) if found else 0.0,
            "below": sum(one < self._threshold for one in found),
            "bank": len(self._bank),
        }

    def state_dict(self) -> dict[str, Any]:
        return {"bank": dict(self._bank)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._bank = dict(state["bank"])
