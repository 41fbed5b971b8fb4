"""Several servers as one: who answers whom, who is down, who comes back. For one event loop.

An episode stays with its server, which keeps what it has computed of it. A request whose server
goes away is sent to another one; a sample is there only when its answer has arrived whole, so none
is counted twice. Servers that were started here are started again, with the newest weights; others
are asked every few seconds whether they are back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx
from packaging.specifiers import SpecifierSet

from agentrl.core.errors import AgentRLError, ConfigError, EngineError
from agentrl.engines.vllm.environment import SUPPORTED
from agentrl.engines.vllm.generate import ROUTE, refusal

__all__ = ["Fleet", "Patience", "Process", "Server"]

_LOG = logging.getLogger("agentrl")
_HOMES = 100_000  # episodes whose server is remembered
_CONNECT_S = 10.0


class Process(Protocol):
    """A server that was started here, as ``launch.ServerProcess`` is one."""

    @property
    def url(self) -> str: ...

    @property
    def death(self) -> str | None: ...

    async def start(self, model: str) -> None: ...

    async def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Patience:
    """How long things may take.

    Attributes:
        retries: How often a request may be sent again.
        health_s: Between two questions whether a server is well.
        answer_s: How long it may take to answer that.
        restarts: In a row, without an answer between them, before a server is given up.
        pause_s: Before the first of them; it doubles each time.
    """

    retries: int = 3
    health_s: float = 5.0
    answer_s: float = 30.0
    restarts: int = 3
    pause_s: float = 1.0


@dataclass(eq=False, slots=True)
class Server:
    """One server.

    Attributes:
        url: Its address now. process: What was started, if it was started here.
        up: It may be asked. current: It has the newest weights, or is being given them.
        load: Requests that are with it or wait for a place there.
        why: How it went down.
        given_up: It was started too often in vain. starts: since it last answered a request.
    """

    url: str
    places: asyncio.Semaphore
    process: Process | None = None
    up: bool = False
    current: bool = False
    load: int = 0
    why: str = ""
    given_up: bool = False
    starts: int = 0
    checking: asyncio.Lock = field(default_factory=asyncio.Lock)
    down: asyncio.Event = field(default_factory=asyncio.Event)


class Fleet:
    """The servers of one engine.

    Args:
        servers: At least one; those with a process are started by ``start``.
        model: What their processes are started with.
        renew: Gives the newest weights to the server it is called with and marks it ``current``.
        patience: How long things may take.

    Attributes:
        moved: Requests that were sent again. deaths: Servers that went down.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        *,
        model: str = "",
        renew: Callable[[Server], Awaitable[None]],
        patience: Patience,
    ) -> None:
        self.servers, self._model, self._renew = servers, model, renew
        self._patience = patience
        self._homes: OrderedDict[str, Server] = OrderedDict()
        self._changed = asyncio.Event()
        self._carers: list[asyncio.Task[None]] = []
        self.moved = self.deaths = 0
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        timeout = httpx.Timeout(None, connect=_CONNECT_S)
        self._client = httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False)

    async def start(self) -> None:
        """Start every process, reach every server, and give them weights.

        Raises:
            ConfigError: one is of another version of vLLM.
            EngineError: one did not start, or cannot be reached.
            WeightSyncError: one did not take the weights.
        """
        starting = [asyncio.create_task(self._first(one)) for one in self.servers]
        try:
            await asyncio.gather(*starting)
        except BaseException:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
            raise
        self._carers = [asyncio.create_task(self._care(one)) for one in self.servers]

    async def _first(self, server: Server) -> None:
        if server.process is not None:
            await server.process.start(self._model)
            server.url = server.process.url
        elif (problem := await self._ails(server)) is not None:
            raise EngineError(
                f"{problem}. Start it before the run, correct engine.options.urls, or let agentrl "
                "start one: engine.options.launch: true"
            )
        else:
            await self._check_version(server)
        await self._renew(server)
        server.up = True

    async def _check_version(self, server: Server) -> None:
        try:
            answer = await self._client.get(
                server.url + "/version", timeout=self._patience.answer_s
            )
            version = str(answer.json()["version"])
            fits = SpecifierSet(SUPPORTED).contains(version, prereleases=True)
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"the server {server.url} does not say which vLLM it is ({error!r}): is it one? "
                f"agentrl works with vLLM {SUPPORTED}"
            ) from error
        if not fits:
            raise ConfigError(
                f"the server {server.url} is vLLM {version}, and agentrl works with {SUPPORTED}: "
                "start one that fits, or let agentrl do so (engine.options.launch: true)"
            )

    async def aclose(self) -> None:
        """End every process that was started here; requests in flight fail."""
        for one in self._carers:
            one.cancel()
        await asyncio.gather(*self._carers, return_exceptions=True)
        for server in self.servers:
            server.up, server.given_up, server.why = False, True, "the engine was closed"
            server.down.set()
        self._changed.set()
        stops = [one.process.stop() for one in self.servers if one.process is not None]
        await asyncio.gather(*stops, return_exceptions=True)
        await self._client.aclose()

    def release(self, episode: str) -> None:
        self._homes.pop(episode, None)

    async def ask(self, episode: str, request: Callable[[], Any]) -> tuple[Any, str, Any]:
        """The answer to a request, as JSON, from the episode's server or another one.

        Args:
            episode: Id of the episode.
            request: Makes what is asked, anew for each time that it is sent.

        Returns:
            What was sent, the server's address, the answer.

        Raises:
            EngineError: a server refused it, it was sent too often, or no server is left.
        """
        trouble = ""
        for again in range(self._patience.retries + 1):
            self.moved += bool(again)
            server = await self._server_of(episode)
            server.load += 1
            try:
                async with server.places:
                    if not server.up:
                        trouble = server.why
                        continue
                    told = request()
                    answer = await self._sent(server, told)
            except (httpx.TransportError, EngineError) as error:
                trouble = f"the server {server.url} went away in the middle of a request: {error!r}"
                await self._check(server)
                continue
            finally:
                server.load -= 1
            if answer.status_code == 200:
                server.starts = 0
                try:
                    return told, server.url, answer.json()
                except ValueError:
                    trouble = refusal(server.url, 200, answer.text or "(nothing)")
                    continue
            trouble = refusal(server.url, answer.status_code, answer.text)
            if answer.status_code < 500:
                break
            await self._check(server)
        raise EngineError(trouble)

    async def _sent(self, server: Server, told: Any) -> httpx.Response:
        """Send it; if the server is found to be down meanwhile, do not wait for the answer."""
        post = asyncio.ensure_future(self._client.post(server.url + ROUTE, json=told))
        lost = asyncio.ensure_future(server.down.wait())
        try:
            await asyncio.wait([post, lost], return_when=asyncio.FIRST_COMPLETED)
            if post.done():
                return post.result()
            raise EngineError(server.why)
        finally:
            for one in (post, lost):
                one.cancel()
            with contextlib.suppress(asyncio.CancelledError, httpx.HTTPError):
                await post  # its connection is closed, which ends the request at the server

    async def _server_of(self, episode: str) -> Server:
        """The server of an episode; waits where all are down and one may come back.

        Raises:
            EngineError: none may.
        """
        while True:
            home = self._homes.get(episode)
            if home is None or not home.up:
                home = min(
                    (one for one in self.servers if one.up), key=lambda one: one.load, default=None
                )
            if home is not None:
                self._homes[episode] = home
                self._homes.move_to_end(episode)
                while len(self._homes) > _HOMES:
                    self._homes.popitem(last=False)
                return home
            if not any(one.process and not one.given_up for one in self.servers):
                raise EngineError(
                    "no vLLM server answers:\n" + "\n".join(one.why for one in self.servers)
                )
            self._changed.clear()
            await self._changed.wait()

    # Health

    async def _care(self, server: Server) -> None:
        """Watch over a server, and bring it back when it is down."""
        while not server.given_up:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._patience.health_s):
                    await server.down.wait()
            if not server.down.is_set():
                await self._check(server)
            if server.down.is_set():
                await self._back(server)

    async def _check(self, server: Server) -> None:
        """Find out whether a server is well; one that is not is down from now on."""
        async with server.checking:
            if server.up and (problem := await self._ails(server)) is not None:
                self._down(server, problem)

    async def _ails(self, server: Server) -> str | None:
        """What is wrong with a server, in words; ``None``: it is well."""
        if server.process is not None and server.process.death is not None:
            return server.process.death
        try:
            answer = await self._client.get(server.url + "/health", timeout=self._patience.answer_s)
        except httpx.HTTPError as error:
            dead = None if server.process is None else server.process.death
            return dead or f"cannot reach the vLLM server {server.url}: {error or repr(error)}"
        if answer.status_code != 200:
            return refusal(server.url, answer.status_code, answer.text or "it is not well")
        return None

    def _down(self, server: Server, why: str) -> None:
        if server.up:
            self.deaths += 1
            _LOG.warning("%s", why)
        server.up = server.current = False
        server.why = why
        server.down.set()
        self._changed.set()

    def lose(self, server: Server, why: str) -> None:
        """Take a server for lost, as it could not be reached otherwise."""
        if server.up:
            self._down(server, why)

    async def _back(self, server: Server) -> None:
        """Wait for a server, or start it again, until it has the newest weights."""
        pause = self._patience.pause_s
        while server.process is None or server.starts < self._patience.restarts:
            server.starts += server.process is not None
            try:
                await self._once_more(server)
            except (AgentRLError, OSError) as error:
                server.why = str(error)
                await asyncio.sleep(min(pause, 10 * self._patience.pause_s))
                pause *= 2
            else:
                server.down.clear()
                server.up = True
                self._changed.set()
                _LOG.warning("the vLLM server %s is back, with the newest weights", server.url)
                return
        server.given_up = True
        server.why += f"\nIt was started {server.starts} times in vain and is given up."
        _LOG.warning("%s", server.why)
        self._changed.set()

    async def _once_more(self, server: Server) -> None:
        if server.process is not None:
            await server.process.start(self._model)
            server.url = server.process.url
        elif (problem := await self._ails(server)) is not None:
            raise EngineError(problem)
        await self._renew(server)
