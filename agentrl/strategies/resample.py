"""Groups without signal are played anew, or dropped (DAPO's dynamic sampling)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.core.strategy import Place, Played, Verdict
from agentrl.core.trajectory import CreditResult, Group
from agentrl.strategies.options import chosen, whole
from agentrl.strategies.signal import has_signal, scores

__all__ = ["Resample"]


class Resample:
    """Plays another group in the place of one whose rewards are all equal.

    With a baseline from the group, equal rewards have the advantages ``r_i - mean(r) = 0``. So such
    a group is played anew, at most ``resamplings`` times; the last attempt is kept or dropped as it
    is told. With ``resamplings=0`` and ``last="drop"`` groups are only filtered.

    A group of which fewer than two episodes could be scored is kept: it is the machine's doing,
    and says nothing about the task.

    Source: DAPO (arXiv 2503.14476), dynamic sampling, which has no bound. What is kept is no fair
    sample of the tasks: those that are solved now and then come to be trained on more often.

    Args:
        resamplings: Groups played at a place after the first, at most.
        task: ``another``: any that is admitted; ``same``: the same task with other seeds.
        last: What becomes of the last attempt, if it has no signal either: ``keep`` or ``drop``.

    Raises:
        ConfigError: an option is out of range.
    """

    def __init__(self, *, resamplings: int = 2, task: str = "another", last: str = "drop") -> None:
        self._resamplings = whole("resample", "resamplings", resamplings, least=0)
        self._same = chosen("resample", "task", task, ("another", "same")) == "same"
        self._drops = chosen("resample", "last", last, ("keep", "drop")) == "drop"

    def judge(self, group: Group, place: Place) -> Verdict:
        if len(scores(group)) < 2 or has_signal(group):
            return "keep"
        if place.attempt < self._resamplings:
            return "again"
        return "drop" if self._drops else "keep"

    def instead(self, group: Group, place: Place, *, seed: int) -> str | None:
        return group.task.id if self._same else None

    def observe(
        self, played: Sequence[Played], groups: Sequence[Group], credit: CreditResult
    ) -> Mapping[str, float]:
        """``last_attempts``: those without signal after which no other was allowed."""
        silent = [one for one in played if len(scores(one.group)) > 1 and not has_signal(one.group)]
        return {"last_attempts": sum(one.place.attempt >= self._resamplings for one in silent)}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing is remembered."""
