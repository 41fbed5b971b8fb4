"""Few episodes of every task first, more where there is signal to be had (AERO)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentrl.core.errors import ConfigError
from agentrl.core.strategy import Played
from agentrl.core.task import derive_seed
from agentrl.core.trajectory import CreditResult, Group
from agentrl.strategies.options import chosen, share, whole
from agentrl.strategies.signal import solved_share

__all__ = ["Adaptive"]


class Adaptive:
    """Plays ``first`` episodes of a task, and decides by the share u of them that succeeded.

    ::

        u <= rescue_below        "rescue": extra more, again and again, until one succeeds
        rescue_below < u < 1     mixed="fill": up to the stage's group_size; "stop": no more
        u = 1                    no more: further successes would compare with nothing

    Never more than the stage's ``group_size``. A mixed group with ``u < 0.5`` is learnt from
    without some of its failures if ``wrong_per_right`` is given: all successes, and for each of
    them so many failures, drawn from the seed.

    Source: AERO (arXiv 2602.14338), of which only abstract and a review were read. There mixed
    groups stop; ``fill`` is ours. Its Beta posterior, which gives advantages to groups of equal
    rewards, is not taken: here equal rewards are equal.

    Episodes that a solved group is spared (``u = 1``) count in the mean over a batch's trajectories
    as if they had been played and had said nothing. Else the others would weigh more the more tasks
    are solved, and the learner's steps grow when they should become smaller. This is ours. Lower
    ``updates_per_iteration`` with the episodes: an update of fewer is noisier
    (``docs/explanation/strategies.md`` has measured it).

    How many episodes a task gets depends on how the first went, so the mean reward of what is
    played is no estimate of success; the validation panel is. Leaving failures out raises a group's
    baseline above the policy's own success.

    Args:
        first: Episodes to begin with; at least 2.
        extra: Further ones of each rescue.
        mixed: ``fill`` or ``stop``.
        rescue_below: Largest share of successes that is rescued; below 0: none is.
        wrong_per_right: Failures kept for each success; ``None``: all.
        count_unplayed: Whether what solved groups are spared counts in the mean.

    Raises:
        ConfigError: an option is out of range.
    """

    def __init__(
        self,
        *,
        first: int = 4,
        extra: int = 2,
        mixed: str = "fill",
        rescue_below: float = 0.0,
        wrong_per_right: float | None = None,
        count_unplayed: bool = True,
    ) -> None:
        self._first = whole("adaptive", "first", first, least=2)
        self._extra = whole("adaptive", "extra", extra, least=1)
        self._fills = chosen("adaptive", "mixed", mixed, ("fill", "stop")) == "fill"
        self._rescue = share("adaptive", "rescue_below", rescue_below, least=-1.0)
        self._counts = count_unplayed
        self._kept = None
        if wrong_per_right is not None:
            limit = share("adaptive", "wrong_per_right", wrong_per_right, most=1e6)
            self._kept = limit

    def first_size(self, group_size: int) -> int:
        """``first``.

        Raises:
            ConfigError: it is not below ``group_size``, so nothing would be adaptive.
        """
        if self._first >= group_size:
            raise ConfigError(
                f"strategy 'adaptive': first={self._first} must be below the stage's group_size="
                f"{group_size}, which is the most that a task gets: lower first or raise group_size"
            )
        return self._first

    def more(self, group: Group, group_size: int) -> int:
        solved, left = solved_share(group), group_size - len(group.trajectories)
        if solved is None or left <= 0 or solved == 1.0:
            return 0
        if solved <= self._rescue:
            return min(self._extra, left)
        return left if self._fills else 0

    def trim(self, group: Group, *, seed: int) -> Group:
        solved = solved_share(group)
        if self._kept is None or solved is None or not 0.0 < solved < 0.5:
            return group
        right = sum(one.success is True for one in group.trajectories)
        wrong = [one.id for one in group.trajectories if one.success is False]
        wrong.sort(key=lambda name: derive_seed(seed, name))
        left_out = set(wrong[max(math.ceil(self._kept * right), 1) :])
        kept = tuple(one for one in group.trajectories if one.id not in left_out)
        return replace(group, trajectories=kept)

    def unplayed(self, group: Group, group_size: int) -> int:
        if not self._counts or solved_share(group) != 1.0:
            return 0
        return max(group_size - len(group.trajectories), 0)

    def observe(
        self, played: Sequence[Played], groups: Sequence[Group], credit: CreditResult
    ) -> Mapping[str, float]:
        """``stopped_solved``, ``stopped_mixed``, ``rescued``, ``unsolved``: how groups ended."""
        ended = {"stopped_solved": 0, "stopped_mixed": 0, "rescued": 0, "unsolved": 0}
        for one in played:
            solved = solved_share(one.group)
            if solved is None:
                continue
            begun = [t for t in one.group.trajectories[: self._first] if t.success is not None]
            lost = not any(t.success for t in begun)
            if solved == 0.0:
                ended["unsolved"] += 1
            elif lost:
                ended["rescued"] += 1
            elif solved == 1.0:
                ended["stopped_solved"] += 1
            elif len(one.group.trajectories) == self._first:
                ended["stopped_mixed"] += 1
        return ended

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing is remembered."""
