"""A window of levels that follows the policy, for environments with graded tasks (RLVE)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.core.errors import ConfigError, nearest
from agentrl.core.strategy import Played
from agentrl.core.task import Task
from agentrl.core.trajectory import CreditResult, Group
from agentrl.strategies.options import share, whole

__all__ = ["Difficulty"]


class Difficulty:
    """Admits tasks of the levels [top - width + 1, top]; success at the top moves the window.

    With s successes of n episodes at the level ``top`` since the window last moved, n at least
    ``episodes``::

        s / n >= raise_at    top <- top + 1, up to highest
        s / n <  lower_at    top <- top - 1, down to lowest
        else                 the counts begin anew

    A task's level is a whole number in its payload: ``rooms`` of the toy environment, ``level`` of
    ALFWorld's games of several difficulties.

    Source: RLVE (arXiv 2511.07317) from memory, to be checked: a window of 4, raised at an accuracy
    of 0.9 at its top. There levels of the window are equally likely; here tasks are, so a level
    that has more tasks is played more often. Lowering is ours; 0 switches it off.

    Args:
        highest: The hardest level. lowest: the easiest, where the window begins.
        key: Where in a task's payload its level stands.
        width: Levels in the window.
        raise_at: Share of successes at which it moves up. lower_at: below which it moves down.
        episodes: Episodes at the top that are looked at together.

    Raises:
        ConfigError: an option is out of range, or a task has no level.
    """

    def __init__(
        self,
        *,
        highest: int,
        lowest: int = 0,
        key: str = "level",
        width: int = 4,
        raise_at: float = 0.9,
        lower_at: float = 0.0,
        episodes: int = 32,
    ) -> None:
        self._lowest = whole("difficulty", "lowest", lowest, least=0)
        self._highest = whole("difficulty", "highest", highest, least=self._lowest)
        self._key = key
        self._width = whole("difficulty", "width", width, least=1)
        self._raise_at = share("difficulty", "raise_at", raise_at)
        self._lower_at = share("difficulty", "lower_at", lower_at)
        if self._lower_at >= self._raise_at:
            raise ConfigError(
                f"strategy 'difficulty': lower_at={self._lower_at:g} must be below raise_at="
                f"{self._raise_at:g}, or the window would move up and down at once"
            )
        self._episodes = whole("difficulty", "episodes", episodes, least=1)
        self._top, self._played, self._solved = self._lowest, 0, 0

    @property
    def window(self) -> tuple[int, int]:
        """The easiest and the hardest level that are played now."""
        return max(self._top - self._width + 1, self._lowest), self._top

    def level(self, task: Task) -> int:
        """The level of a task.

        Raises:
            ConfigError: it has none.
        """
        level = task.payload.get(self._key)
        if not isinstance(level, int) or isinstance(level, bool):
            raise ConfigError(
                f"strategy 'difficulty': task {task.id} of '{task.env}' has no whole number under "
                f"'{self._key}' in its payload{nearest(self._key, task.payload) or '.'} It has: "
                f"{', '.join(task.payload) or 'nothing'}. Set key to where a level stands, or let "
                "the environment grade its tasks (ALFWorld: a list of difficulties)"
            )
        return level

    def admits(self, task: Task) -> bool:
        easiest, hardest = self.window
        return easiest <= self.level(task) <= hardest

    def observe(
        self, played: Sequence[Played], groups: Sequence[Group], credit: CreditResult
    ) -> Mapping[str, float]:
        """``easiest``, ``hardest``: the window that was played.

        ``success``: at its top, where any episode there finished.
        """
        easiest, hardest = self.window
        at_top = [one.group for one in played if self.level(one.group.task) == hardest]
        known = [t.success for group in at_top for t in group.trajectories]
        finished = [one for one in known if one is not None]
        self._played += len(finished)
        self._solved += sum(finished)
        if self._played >= self._episodes:
            success = self._solved / self._played
            if success >= self._raise_at:
                self._top = min(self._top + 1, self._highest)
            elif success < self._lower_at:
                self._top = max(self._top - 1, self._lowest)
            self._played = self._solved = 0
        found = {"easiest": float(easiest), "hardest": float(hardest)}
        if finished:
            found["success"] = sum(finished) / len(finished)
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"top": self._top, "played": self._played, "solved": self._solved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._top, self._played = state["top"], state["played"]
        self._solved = state["solved"]
