"""Episodes in the queue of a stream, and records of those that are not played to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentrl.agents.flight import Episode, Flight
from agentrl.core.errors import DataError
from agentrl.core.task import derive_seed
from agentrl.core.trajectory import Failure, Step, StopReason, Trajectory
from agentrl.rollout.limits import GroupRequest

__all__ = ["GroupInPlay", "Turn", "check_same", "given_up"]


@dataclass(slots=True)
class GroupInPlay:
    """A group being played."""

    number: int
    request: GroupRequest
    results: list[Trajectory | None]
    begun: bool = False
    cut: bool = False
    left: int = 0
    finished: int = 0
    cutter: asyncio.TimerHandle | None = None


@dataclass(slots=True, order=True)
class Turn:
    """The next attempt at one episode; older groups go first.

    Those that tried in vain an engine that is down go ``behind``, so that others try it too.
    ``left`` more attempts may follow one that fails by itself, ``spared`` more one that an outage
    took; ``outages`` did.
    """

    behind: int = field(default=0, init=False)
    number: int
    member: int
    group: GroupInPlay = field(compare=False)
    attempt: int = field(compare=False)
    left: int = field(compare=False)
    spared: int = field(compare=False)
    outages: int = field(default=0, compare=False)
    flight: Flight | None = field(default=None, compare=False)
    task: asyncio.Task[None] | None = field(default=None, compare=False)

    def failed(self, outage: bool) -> bool:
        """Count an attempt that failed; False: it was the last."""
        if outage and self.spared:
            self.spared -= 1
            self.outages += 1
            return True
        self.left -= 1
        return self.left >= 0

    @property
    def episode(self) -> Episode:
        request = self.group.request
        trial = request.first_trial + self.member
        seed = derive_seed(request.seed, request.task.id, trial)
        return Episode(request.id, request.task.id, trial, self.attempt, seed, request.task.env)


def check_same(known: Trajectory, episode: Episode) -> None:
    """Refuse a record of another episode.

    Raises:
        DataError: it is not what would be played.
    """
    if (known.task_id, known.seed) != (episode.task_id, episode.seed):
        raise DataError(
            f"trajectory '{known.id}' was recorded for task {known.task_id} with seed "
            f"{known.seed}, and this run would play task {episode.task_id} with seed "
            f"{episode.seed}: the run was changed since. Resume it as it was, or start a new one "
            "in another directory"
        )


def given_up(episode: Episode, failure: Failure, steps: Sequence[Step] = ()) -> Trajectory:
    """The record of an attempt that the runner ended, or never began."""
    return Trajectory(
        id=episode.id,
        group_id=episode.group_id,
        task_id=episode.task_id,
        trial=episode.trial,
        attempt=episode.attempt,
        seed=episode.seed,
        steps=tuple(steps),
        stop_reason=StopReason.FAILURE,
        failure=failure,
    )
