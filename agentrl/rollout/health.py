"""When a run must stop: nothing finishes, or nothing moves."""

from __future__ import annotations

from collections import Counter

from agentrl.core.errors import EpisodeError
from agentrl.core.task import Task
from agentrl.core.trajectory import Failure
from agentrl.rollout.stats import RolloutStats, cause

__all__ = ["Health", "stalled"]

SHOWN = 20


class Health:
    """Failed attempts since an episode finished, and the first cause of them.

    Args:
        give_up_after: So many stop the run.
        attempts: Of one task no more count than one episode has attempts: a single bad task among
            others that take longer stops nothing.
    """

    def __init__(self, give_up_after: int, attempts: int) -> None:
        self._give_up_after = give_up_after
        self._attempts = attempts
        self._failures: Counter[str] = Counter()
        self.first_cause = ""

    def finished(self) -> None:
        """An episode has finished."""
        self._failures.clear()
        self.first_cause = ""

    def failed(self, failure: Failure, task: Task) -> None:
        """An attempt at ``task`` has failed.

        Raises:
            EpisodeError: it was one too many.
        """
        self.first_cause = self.first_cause or f"{cause(failure)}: {failure.message}"
        self._failures[task.id] += 1
        if sum(min(one, self._attempts) for one in self._failures.values()) >= self._give_up_after:
            raise EpisodeError(
                f"{self._failures.total()} episodes in a row failed and none finished; stopping. "
                f"First cause: {self.first_cause}"
            )


def stalled(stats: RolloutStats, now_s: float, still_s: float) -> EpisodeError:
    """The error that says what everybody in flight waits for.

    Args:
        stats: Knows who is in flight.
        now_s: Of the event loop's clock. still_s: for how long nothing has moved.
    """
    waiting = stats.waiting()
    lines = [
        f"  {one.episode} (environment '{one.env}', {one.steps} steps): "
        f"'{one.place}' for {now_s - one.since_s:.0f} s"
        for one in waiting[:SHOWN]
    ]
    more = [f"  and {len(waiting) - SHOWN} more"] if len(waiting) > SHOWN else []
    text = f"nothing has moved for {still_s:.0f} s; stopping. Episodes in flight wait for:"
    return EpisodeError("\n".join([text, *lines, *more]))
