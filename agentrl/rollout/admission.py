"""Groups played without end beside a learner, as many ahead of it as it allows.

Everything here runs in the event loop of the episodes; ``agentrl.asynchronous`` is the learner's
side, in another thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Self

from agentrl.core.trajectory import Group
from agentrl.rollout.limits import GroupRequest
from agentrl.rollout.runner import Runner
from agentrl.rollout.staleness import Settled

__all__ = ["Admission", "Admitted", "Supply"]


@dataclass(frozen=True, slots=True)
class Admitted:
    """A group that is not complete: its position, and the oldest version it may have samples of."""

    position: int
    version: int


@dataclass(slots=True)
class Admission(AsyncIterator[GroupRequest]):
    """Gives out requests in order, as many as ``allow`` has allowed; then it waits.

    Args:
        runner: Knows what was recorded of a request before the run was killed.
        requests: With their positions, without end.
        given: How many of the stage were given out by a run before a kill, and are settled.
        version: Of the weights that a group which begins now is sampled with, or newer.
        allowed: How many in all.

    Attributes:
        under_way: What was given out and is not complete, by id.
    """

    runner: Runner
    requests: Iterator[tuple[int, GroupRequest]]
    given: int = 0
    version: int = 0
    allowed: int = 0
    under_way: dict[str, Admitted] = field(default_factory=dict)
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def allow(self, count: int, version: int) -> None:
        self.allowed, self.version = count, version
        self._more.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> GroupRequest:
        while self.given >= self.allowed:
            self._more.clear()
            await self._more.wait()
        position, request = next(self.requests)
        self.given += 1
        recorded = self.runner.recorded(request).values()
        versions = [one.policy_version for one in recorded if one.steps]
        oldest = min([self.version, *versions])
        self.under_way[request.id] = Admitted(position, oldest)
        return request


class Supply:
    """Plays admitted groups and gathers those that are complete, discarded ones among them.

    Enter it as a context: leaving cancels what is in flight and waits until all is closed.

    Args:
        runner: Plays them; its ``on_discarded`` is not called.
        requests, given, version: As for ``Admission``; none may begin until ``allow`` is called.
    """

    def __init__(
        self,
        runner: Runner,
        requests: Iterator[tuple[int, GroupRequest]],
        *,
        given: int,
        version: int,
    ) -> None:
        runner = replace(runner, on_discarded=self._discarded)
        self.admission = Admission(runner, requests, given, version)
        self._stream = runner.stream(self.admission)
        self._complete: list[Settled] = []
        self._news = asyncio.Event()
        self._error: BaseException | None = None

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        self._pump = asyncio.create_task(self._deliver(), name="complete groups")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._pump.cancel()
        with suppress(asyncio.CancelledError):
            await self._pump
        await self._stream.__aexit__(None, None, None)

    async def _deliver(self) -> None:
        try:
            async for group in self._stream:
                self._add(group, discarded=False)
        except Exception as error:  # the learner's side raises it
            self._error = error
            self._news.set()

    def _discarded(self, request: GroupRequest, group: Group) -> None:
        self._add(group, discarded=True)

    def _add(self, group: Group, *, discarded: bool) -> None:
        admitted = self.admission.under_way.pop(group.id)
        self._complete.append(Settled(admitted.position, group, discarded))
        self._news.set()

    async def take(self, *, wait: bool) -> tuple[list[Settled], list[int]]:
        """The groups that became complete since the last call, and what is under way.

        Args:
            wait: Until there is at least one.

        Returns:
            The groups in the order of being complete; of those under way the oldest version that
            each may have samples of.

        Raises:
            Exception: whatever stopped the play.
        """
        while wait and not self._complete and self._error is None:
            self._news.clear()
            await self._news.wait()
        if self._error is not None:
            raise self._error
        complete, self._complete = self._complete, []
        return complete, [one.version for one in self.admission.under_way.values()]

    async def allow(self, count: int, version: int) -> None:
        """Groups may be begun up to ``count`` in all, those that begin now under ``version``."""
        self.admission.allow(count, version)

    def left(self) -> dict[str, int]:
        """Id -> position of the groups begun and not taken. To be called once all is closed."""
        complete = {one.group.id: one.position for one in self._complete}
        under_way = self.admission.under_way.items()
        return complete | {name: admitted.position for name, admitted in under_way}
