"""Verified successes join their task's later groups (RLEP)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.core.strategy import Played, Recall
from agentrl.core.trajectory import CreditResult, Group, Trajectory
from agentrl.strategies.options import chosen, whole
from agentrl.strategies.signal import solved_share

__all__ = ["Replay"]


class Replay:
    """Keeps the successes of every task and lets some of them join its later groups.

    A group of n fresh episodes and m replayed successes is compared as one of n + m, by whatever
    credit the stage has. Replayed tokens keep the log-probabilities of the policy mu that sampled
    them, so the loss sees them with the ratio ``pi / mu``, clipped as that of any token.

    What is biased: the ratio is per token, so how likely mu was to come so far is not corrected
    for; the clip cuts what has drifted most; and the group's baseline lies above the success of the
    policy, which makes its failures look worse and its successes less good than they are.

    Source: RLEP (code Kwai-Klear/RLEP, read): 2 per group, from an earlier run. There old
    log-probabilities are computed anew, so that replays enter with ratio 1, as if the present
    policy had sampled them. Here they are not, and the successes are those of this very stage.

    A task has to come again for this to do anything: give a run few tasks, or many epochs.

    Args:
        per_group: Most successes that join a group.
        keep: Successes kept of each task, the newest.
        when: ``always``, or ``unsolved``: only where no fresh episode succeeded.

    Raises:
        ConfigError: an option is out of range.
    """

    def __init__(self, *, per_group: int = 2, keep: int = 8, when: str = "always") -> None:
        self._per_group = whole("replay", "per_group", per_group, least=1)
        self._keep = whole("replay", "keep", keep, least=1)
        self._unsolved = chosen("replay", "when", when, ("always", "unsolved")) == "unsolved"
        self._successes: dict[str, list[str]] = {}

    def join(self, group: Group, *, seed: int, recall: Recall) -> Sequence[Trajectory]:
        known = self._successes.get(group.task.id, [])
        if not known or (self._unsolved and solved_share(group) != 0.0):
            return ()
        drawn = random.Random(seed).sample(known, min(self._per_group, len(known)))
        return [recall(one) for one in sorted(drawn)]

    def observe(
        self, played: Sequence[Played], groups: Sequence[Group], credit: CreditResult
    ) -> Mapping[str, float]:
        """``tasks``: with a success that is kept. ``successes``: kept of all."""
        for one in played:
            won = [t.id for t in one.group.trajectories if t.success is True and t.scored]
            if won:
                task = one.group.task.id
                self._successes[task] = [*self._successes.get(task, ()), *won][-self._keep :]
        kept = sum(map(len, self._successes.values()))
        return {"tasks": len(self._successes), "successes": kept}

    def state_dict(self) -> dict[str, Any]:
        return {"successes": {task: list(ids) for task, ids in self._successes.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._successes = {task: list(ids) for task, ids in state["successes"].items()}
