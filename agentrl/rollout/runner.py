"""The runner: groups of episodes in flight under limits, with bounded retries.

Work is scheduled by slot: a finished episode's slot is refilled at once. What is played, with
which seeds, never depends on scheduling. ``docs/reference/faults.md`` says what becomes of every
fault.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agentrl.agents.gate import EngineGate
from agentrl.agents.loop import Agent
from agentrl.core.errors import EpisodeError
from agentrl.core.protocols import EnvFactory
from agentrl.core.trajectory import Failure, Group, Trajectory
from agentrl.rollout.limits import GroupRequest, Limits
from agentrl.rollout.poison import Poison
from agentrl.rollout.stats import RolloutStats, cause
from agentrl.rollout.stream import Stream
from agentrl.rollout.turns import given_up

__all__ = ["GroupRequest", "Limits", "Runner", "refuse_if_nothing_finished"]


@dataclass(frozen=True, slots=True)
class Runner:
    """Plays groups with one agent on one environment.

    Attributes:
        on_trajectory: Called with every record (failed attempts too) before it counts as
            delivered: the store's place. What it raises stops everything.
        recorded: Gives, by trial, what of a group was played before the run was killed: the last
            attempt at each. It is not played again, unless it failed and an attempt is left; or
            unless nothing recorded finished, for then the machine was at fault and may have been
            mended since: all attempts are made anew.
        poison: Tasks that are set aside; none by default.
        on_discarded: Called with every group below its quorum; it is not delivered.
        stats: What was done, for whoever looks on.
        clock: Seconds, for the timings on record.
        gate: The way to the agent's engine; give one to all runners that use the engine at once.
            ``None``: one for each stream, with ``limits``.
    """

    factory: EnvFactory
    agent: Agent
    limits: Limits = field(default_factory=Limits)
    on_trajectory: Callable[[GroupRequest, Trajectory], None] = field(default=lambda *_: None)
    recorded: Callable[[GroupRequest], Mapping[int, Trajectory]] = field(default=lambda _: {})
    poison: Poison = field(default_factory=Poison)
    on_discarded: Callable[[GroupRequest, Group], None] = field(default=lambda *_: None)
    stats: RolloutStats = field(default_factory=RolloutStats)
    clock: Callable[[], float] = time.perf_counter
    gate: EngineGate | None = None

    def stream(
        self,
        requests: Iterable[GroupRequest] | AsyncIterable[GroupRequest],
        *,
        ahead: int | None = None,
    ) -> Stream:
        """Groups as soon as each is complete: ``async with runner.stream(...) as groups``.

        Episodes go on while the consumer works, up to ``ahead`` groups that are begun and not
        taken. See ``Stream``; errors as for ``run``.
        """
        return Stream(self, requests, ahead)

    async def run(self, requests: Iterable[GroupRequest]) -> list[Group]:
        """Play all groups; returned in the order of ``requests``, trajectories in trial order.

        Groups below the quorum are left out.

        Raises:
            EpisodeError: ``give_up_after`` episodes failed in a row, nothing moved for
                ``stall_s``, or no group reached its quorum and nothing finished; says the cause.
            DataError: what is recorded is not what would be played; a group is asked for twice.
            Exception: a bug in an agent part stops everything.
        """
        asked = list(requests)
        groups: dict[str, Group] = {}
        async with self.stream(asked) as stream:
            async for group in stream:
                groups[group.id] = group
        return [groups[one.id] for one in asked if one.id in groups]

    def blame(self, task_name: str, blocked_s: float) -> None:
        """Record the episode whose code holds the event loop as failed, from another thread.

        So a resumed run does not draw its task again and again (``SqliteStore.blocking_tasks``).
        What it may still bring is late.

        Args:
            task_name: Name of the asyncio task that is running; not an episode's: nothing happens.
            blocked_s: For how long it has.
        """
        found = self.stats.flight(task_name)
        if found is None:
            return
        flight, request = found
        self.stats.landed(flight)
        why = f"{flight.waiting_for or 'the episode'} blocked the event loop for {blocked_s:.1f} s"
        failure = Failure(flight.waiting_for or "episode", "BlockedError", why)
        trajectory = given_up(flight.episode, failure, flight.steps)
        self.stats.ended(trajectory)
        self.on_trajectory(request, trajectory)


def refuse_if_nothing_finished(groups: Sequence[Group]) -> None:
    """Stop where every episode of a rollout failed, however few they were.

    Tasks that were set aside were not played, and do not count.

    Raises:
        EpisodeError: with the first cause.
    """
    failures = [one.failure for group in groups for one in group.trajectories]
    tried = [one for one in failures if one is None or one.error != "PoisonedTaskError"]
    causes = [one for one in tried if one is not None]
    if causes and len(causes) == len(tried):
        first = causes[0]
        raise EpisodeError(
            f"all {len(tried)} episodes failed and none finished; stopping. First cause: "
            f"{cause(first)}: {first.message}"
        )
