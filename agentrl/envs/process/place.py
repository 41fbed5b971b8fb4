"""One of a pool's places for a process: starts it, starts it again, gives it up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from agentrl.core.errors import AgentRLError, ConfigError, EnvDiedError, EnvError
from agentrl.envs.process.connection import Connection
from agentrl.envs.process.launch import Program

_LOG = logging.getLogger(__name__)

__all__ = ["Owner", "Place", "again", "closed"]

ATTEMPTS_AT_FIRST = 3
ATTEMPTS_LATER = 8  # with pauses of 12 s in all: the machine may recover
REST_S = 60.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


class Owner(Protocol):
    """What a place needs of its pool; ``proven``: some process has been ready."""

    closing: bool
    proven: bool

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...

    def share_out(self) -> None: ...


class Place:
    """A place for one process at a time. Retired processes end beside it.

    Attributes:
        connection: The process that is sent episodes now.
        abilities: What it says of its factory.
        reserved: Episodes that will be made here once the process is ready.
        failure: Why no process can be started here.
        deaths: Of processes, since an episode was last made.
    """

    def __init__(self, number: int, program: Program, owner: Owner) -> None:
        self.number = number
        self.connection: Connection | None = None
        self.abilities: dict[str, Any] = {}
        self.reserved = 0
        self.failure: AgentRLError | None = None
        self.deaths = 0
        self._program = program
        self._owner = owner
        self._alive: set[Connection] = set()
        self._starting: asyncio.Task[Connection] | None = None
        self._failed_starts = 0  # in a row
        self._given_up_s = 0.0

    @property
    def usable(self) -> bool:
        """Whether it is worth trying: after a minute's rest a place that was given up is, once."""
        if self.failure is None:
            return True
        return asyncio.get_running_loop().time() - self._given_up_s > REST_S

    @property
    def load(self) -> int:
        return self.reserved + (0 if self.connection is None else len(self.connection.episodes))

    @property
    def suspect(self) -> bool:
        """An episode that was cancelled has not ended yet: the process may be stuck in it."""
        return self.connection is not None and bool(self.connection.dropping)

    async def ready(self) -> Connection:
        """The process, which is started first if there is none.

        Raises:
            AgentRLError: it does not start. For a minute further calls raise the same at once.
        """
        while self.connection is not None:
            if not self.connection.dying:
                return self.connection
            await self.connection.buried()
        if not self.usable:
            raise again(self.failure)
        if self._starting is None:
            self._starting = self._owner.spawn(self._start())
        starting = self._starting
        await asyncio.wait([starting])  # which goes on if this call is cancelled
        if starting.cancelled():
            raise closed()
        return starting.result()

    async def _start(self) -> Connection:
        try:
            while True:
                await asyncio.sleep(self._pause_s())
                connection = Connection(self.number, self._program, self._lost)
                self._alive.add(connection)
                try:
                    abilities = await connection.open()
                    if connection.death is not None:  # just after it had become ready
                        raise EnvDiedError(connection.death)
                except AgentRLError as error:
                    self._alive.discard(connection)
                    self.deaths += 1
                    self._failed_starts += 1
                    attempts = ATTEMPTS_LATER if self._owner.proven else ATTEMPTS_AT_FIRST
                    if self._failed_starts >= attempts or not isinstance(error, EnvDiedError):
                        self._give_up(error)
                        raise again(self.failure) from None
                else:
                    self.abilities = abilities
                    self.connection, self._owner.proven = connection, True
                    self.failure, self._failed_starts = None, 0
                    return connection
        finally:
            self._starting = None
            self._owner.share_out()

    def _pause_s(self) -> float:
        if not self.deaths or self.failure is not None:  # it has rested
            return 0.0
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (self.deaths - 1))

    def _give_up(self, error: AgentRLError) -> None:
        """What never worked is a wrong setting; what worked before is the machine's fault."""
        if isinstance(error, EnvDiedError):
            text = f"{error}\nIt was started {self._failed_starts} times in a row and is given up."
            self.failure = EnvDiedError(text) if self._owner.proven else ConfigError(text)
        elif self._owner.proven:
            text = f"env worker {self.number} does not start as others did: {error}"
            self.failure = EnvDiedError(text)
        else:
            self.failure = error
        self._given_up_s = asyncio.get_running_loop().time()
        if self._owner.proven:
            _LOG.warning("the environment has a worker less for %g s: %s", REST_S, self.failure)

    def _lost(self, connection: Connection) -> None:
        """A process is gone. If it was wanted, another one is started."""
        self._alive.discard(connection)
        if connection is self.connection:
            self.connection = None
            self.deaths += 1
            if not self._owner.closing:
                self._owner.spawn(self._restart())
        self._owner.share_out()

    async def _restart(self) -> None:
        try:
            await self.ready()
        except AgentRLError:
            return  # it is on record in ``failure``, for whoever needs the place

    def retire(self, connection: Connection) -> None:
        """Make nothing in ``connection`` any more, if it is here; it ends after its episodes."""
        if connection is self.connection:
            connection.retired = True
            self.connection = None

    async def close(self) -> None:
        """End the process, and those that were retired."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        await asyncio.gather(*(one.end("was told to end") for one in list(self._alive)))


def closed() -> EnvError:
    return EnvError("the environment's workers are closed; make a new factory to go on")


def again(error: AgentRLError | None) -> AgentRLError:
    """An error to raise once more; one object raised twice would gather tracebacks."""
    assert error is not None
    return type(error)(str(error))
