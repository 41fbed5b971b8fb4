"""The way to an engine that many share: a limit on its tokens, and patience while it is down."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from agentrl.agents.flight import Failed, Flight
from agentrl.agents.outage import Outages

__all__ = ["EngineGate", "TokenGate"]


class TokenGate:
    """Lets calls of the engine begin while their prompts and longest answers fit together.

    Strictly first come, first served: a large call is not starved by small ones. A call larger
    than the limit runs alone. For one event loop.

    Args:
        limit: Tokens in flight; 0: no limit.
    """

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.in_use = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """Calls that wait for room."""
        return sum(not turn.cancelled() for _, turn in self._queue)

    def full(self, tokens: int) -> bool:
        """Whether a call of ``tokens`` that came now would have to wait."""
        return bool(self._queue) or not self._fits(tokens)

    @asynccontextmanager
    async def room(self, tokens: int) -> AsyncIterator[None]:
        """Wait for room, hold it inside; cancelling gives the place in the queue up."""
        if self.full(tokens):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append((tokens, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.cancelled():
                    self._let_in()
                else:  # let in and cancelled at one moment
                    self._give_back(tokens)
                raise
        else:
            self.in_use += tokens
        try:
            yield
        finally:
            self._give_back(tokens)

    def _fits(self, tokens: int) -> bool:
        return not self.limit or not self.in_use or self.in_use + tokens <= self.limit

    def _give_back(self, tokens: int) -> None:
        self.in_use -= tokens
        self._let_in()

    def _let_in(self) -> None:
        while self._queue and (self._queue[0][1].cancelled() or self._fits(self._queue[0][0])):
            tokens, turn = self._queue.popleft()
            if not turn.cancelled():
                self.in_use += tokens
                turn.set_result(None)


@dataclass(frozen=True, slots=True)
class EngineGate:
    """What all who use one engine in one event loop pass on their way to it.

    Whoever owns the engine makes one and gives it to every ``Runner``: then training and an
    evaluation beside it share the engine's tokens, and an outage that one meets is known to both.
    """

    tokens: TokenGate = field(default_factory=TokenGate)
    outages: Outages = field(default_factory=Outages)

    @classmethod
    def of(cls, tokens_in_flight: int = 0, pause_s: float = 0.0) -> EngineGate:
        """With a limit on tokens (0: none) and a first pause before a failing engine is tried."""
        return cls(TokenGate(tokens_in_flight), Outages(pause_s))

    @asynccontextmanager
    async def call(self, flight: Flight, tokens: int) -> AsyncIterator[None]:
        """Wait for room and for the engine; call it inside. Notes what came of it.

        ``flight.outage`` says afterwards whether a failure was the engine's, down for all.
        """
        async with self.tokens.room(tokens):
            try:
                call = await self.outages.admit()
            except asyncio.CancelledError:
                if flight.verdict is not None and flight.verdict.error == "DeadlineError":
                    flight.outage = "hit"  # its time ran out while the engine was down
                raise
            try:
                yield
            except BaseException as error:
                failure = error.failure if isinstance(error, Failed) else flight.verdict
                if failure is not None and failure.boundary == "sample":
                    who = (flight.episode.group_id, flight.episode.trial)
                    flight.outage = self.outages.failed(call, who)
                else:
                    self.outages.withdrawn(call)
                raise
            self.outages.answered(call)
