"""The runner: groups of episodes in flight under one limit, with bounded retries.

Work is scheduled by slot: a finished episode's slot is refilled at once. What is played, with
which seeds, never depends on scheduling.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agentrl.agents.loop import Agent, Episode, play
from agentrl.core.errors import DataError, EpisodeError
from agentrl.core.protocols import EnvFactory
from agentrl.core.task import Task, derive_seed
from agentrl.core.trajectory import Group, Trajectory

__all__ = ["GroupRequest", "Limits", "Runner", "refuse_if_nothing_finished"]


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """Play ``size`` episodes of ``task``; trials are numbered from ``first_trial``.

    The seed of an episode is derived from (``seed``, task id, trial).
    """

    id: str
    task: Task
    size: int
    seed: int
    first_trial: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the play.

    Attributes:
        concurrency: Episodes in flight.
        retries: Further attempts after an infra failure, each with a fresh environment.
        give_up_after: Failed episodes in a row, none finished between, that stop the run.
    """

    concurrency: int = 128
    retries: int = 2
    give_up_after: int = 16


@dataclass(slots=True)
class _Slot:
    request: GroupRequest
    recorded: Mapping[int, Trajectory]
    trajectories: list[Trajectory | None]


@dataclass(slots=True)
class _Health:
    """Failures since the last finished episode, and the first cause of them."""

    failures: int = 0
    first: str = ""


@dataclass(frozen=True, slots=True)
class Runner:
    """Plays groups with one agent on one environment.

    ``on_trajectory`` is called with every finished record (failed attempts too) before it counts
    as delivered: the store's place. ``recorded`` gives, by trial, what of a group was played before
    the run was killed: the last attempt at each. It is not played again, unless it failed and an
    attempt is left; or unless nothing recorded finished, for then the machine was at fault and may
    have been mended since: all attempts are made anew.
    """

    factory: EnvFactory
    agent: Agent
    limits: Limits = Limits()
    on_trajectory: Callable[[GroupRequest, Trajectory], None] = field(default=lambda *_: None)
    recorded: Callable[[GroupRequest], Mapping[int, Trajectory]] = field(default=lambda _: {})

    async def run(self, requests: Iterable[GroupRequest]) -> list[Group]:
        """Play all groups; returned in the order of ``requests``, trajectories in trial order.

        Raises:
            EpisodeError: ``give_up_after`` episodes failed in a row; says the first cause.
            DataError: what is recorded is not what would be played.
            Exception: a bug in an agent part stops everything.
        """
        slots = [_Slot(one, self.recorded(one), [None] * one.size) for one in requests]
        recorded = [one for slot in slots for one in slot.recorded.values()]
        spent = self.limits.retries if any(one.failure is None for one in recorded) else None
        waiting = deque((slot, member) for slot in slots for member in range(slot.request.size))
        health = _Health()
        workers = min(self.limits.concurrency, len(waiting))
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(workers):
                    tasks.create_task(self._work(waiting, health, spent))
        except BaseExceptionGroup as group:
            # Every worker stops for the first cause; the others were only cancelled.
            raise group.exceptions[0] from None
        return [_group(slot) for slot in slots]

    async def _work(
        self, waiting: deque[tuple[_Slot, int]], health: _Health, spent: int | None
    ) -> None:
        while waiting:
            slot, member = waiting.popleft()
            slot.trajectories[member] = await self._episode(slot, member, health, spent)

    async def _episode(
        self, slot: _Slot, member: int, health: _Health, spent: int | None
    ) -> Trajectory:
        """``spent``: the attempt after which a recorded failure is final; ``None``: none is."""
        request = slot.request
        trial = request.first_trial + member
        seed = derive_seed(request.seed, request.task.id, trial)
        known = slot.recorded.get(trial)
        if known is not None:
            _check_same(known, request, seed)
            if known.failure is None or (spent is not None and known.attempt >= spent):
                return known
        first = 0 if known is None else known.attempt + 1
        last = self.limits.retries if spent is not None else first + self.limits.retries
        for attempt in range(first, last + 1):
            episode = Episode(request.id, request.task.id, trial, attempt, seed)
            trajectory = await play(
                self.agent, lambda: self.factory.make(request.task, seed=seed), episode
            )
            self.on_trajectory(request, trajectory)
            if trajectory.failure is None:
                health.failures, health.first = 0, ""
                return trajectory
            self._count(health, trajectory)
        return trajectory

    def _count(self, health: _Health, trajectory: Trajectory) -> None:
        failure = trajectory.failure
        assert failure is not None
        health.failures += 1
        health.first = health.first or f"{failure.boundary}: {failure.error}: {failure.message}"
        if health.failures >= self.limits.give_up_after:
            raise EpisodeError(
                f"{health.failures} episodes in a row failed and none finished; stopping. "
                f"First cause: {health.first}"
            )


def refuse_if_nothing_finished(groups: Sequence[Group]) -> None:
    """Stop where every episode of a rollout failed, however few they were.

    Raises:
        EpisodeError: with the first cause.
    """
    played = [one for group in groups for one in group.trajectories]
    causes = [one.failure for one in played if one.failure is not None]
    if causes and len(causes) == len(played):
        first = causes[0]
        raise EpisodeError(
            f"all {len(played)} episodes failed and none finished; stopping. First cause: "
            f"{first.boundary}: {first.error}: {first.message}"
        )


def _check_same(known: Trajectory, request: GroupRequest, seed: int) -> None:
    if (known.task_id, known.seed) != (request.task.id, seed):
        raise DataError(
            f"trajectory '{known.id}' was recorded for task {known.task_id} with seed "
            f"{known.seed}, and this run would play task {request.task.id} with seed {seed}: the "
            "run was changed since. Resume it as it was, or start a new one in another directory"
        )


def _group(slot: _Slot) -> Group:
    played: Sequence[Trajectory] = [one for one in slot.trajectories if one is not None]
    return Group(slot.request.id, slot.request.task, tuple(played))
