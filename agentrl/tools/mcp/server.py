"""A server in a list of tools: ``{name: mcp, options: {command: [...]}}`` or ``{url: ...}``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from agentrl.core.errors import AgentRLError, ConfigError, EnvError, MissingDependencyError
from agentrl.core.message import ToolSpec
from agentrl.core.task import Task
from agentrl.tools.mcp.connection import Connection
from agentrl.tools.mcp.listing import Listed, McpTool, read_listing
from agentrl.tools.mcp.target import target_of

__all__ = ["McpServer"]


@dataclass(slots=True)
class _Shared:
    """A session for many episodes. ``retired``: no new one may use it."""

    connection: Connection
    users: int = 0
    retired: bool = False


class McpServer:
    """The tools of an MCP server (a ``ToolProvider``).

    Each episode has a session of its own, and so a process of its own if the server is a command:
    what the tools keep is the episode's. What the server lists is checked when the first session
    begins; it may not list anything else later.

    Args:
        command: Program and arguments of a server that speaks over its standard input and output.
        url: Address of a server over streamable HTTP, instead.
        cwd: Working folder of the command.
        env: Environment variables for the command, beside PATH, HOME and the like.
        env_from: Secrets for the command: {its variable: our variable}, or a list of names.
        headers_from: Secrets for the url: {header: our environment variable}.
        prefix: Put before every tool's name, where names of two servers collide.
        tools: Names (as the server has them) of the tools to offer; default: all.
        read_only: Names of the tools that change nothing, or true for all; default: those of which
            the server says so (``readOnlyHint``).
        shared: One session for all episodes. Only for tools that change nothing.
        deadline_s: Most seconds of a call; default: what the environment allows.
        start_s: Most seconds until a session has begun.
        failed_starts: After so many failed starts of the command in a row it is not tried again.
        protocol: ``legacy`` for servers that break when they are asked for the newest protocol.

    Raises:
        ConfigError: options that are wrong; see ``target_of``.
        MissingDependencyError: the library is not installed.
    """

    def __init__(
        self,
        *,
        command: Sequence[str] | None = None,
        url: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        env_from: Mapping[str, str] | Sequence[str] | None = None,
        headers_from: Mapping[str, str] | None = None,
        prefix: str = "",
        tools: Sequence[str] | None = None,
        read_only: Sequence[str] | bool | None = None,
        shared: bool = False,
        deadline_s: float | None = None,
        start_s: float = 30.0,
        failed_starts: int = 5,
        protocol: Literal["auto", "legacy"] = "auto",
    ) -> None:
        _load_library()
        self._target = target_of(command, url, cwd, env, env_from, headers_from)
        self.label = self._target.label
        if protocol not in ("auto", "legacy"):
            raise ConfigError(f"{self.label}: protocol must be auto or legacy, got {protocol!r}")
        for name, value in (("deadline_s", deadline_s), ("start_s", start_s)):
            if value is not None and not value > 0:
                raise ConfigError(f"{self.label}: {name} must be above 0, got {value!r}")
        for name, names in (("tools", tools), ("read_only", read_only)):
            if isinstance(names, str):
                raise ConfigError(f"{self.label}: {name} must be a list of names, got {names!r}")
        self._prefix = prefix
        self._chosen = tools
        self._read_only = read_only
        self._is_shared = shared
        self._deadline_s = deadline_s
        self._start_s = start_s
        self._failed_starts = failed_starts
        self._protocol = protocol
        self._failed = 0
        self._last: AgentRLError | None = None
        self._listed: tuple[Listed, ...] | None = None
        self._sessions: dict[asyncio.AbstractEventLoop, _Shared] = {}
        self._locks: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}

    @asynccontextmanager
    async def open(self, task: Task, seed: int) -> AsyncIterator[Sequence[McpTool]]:
        """The server's tools for one episode. It is told neither the task nor the seed.

        Raises:
            ConfigError: its tools cannot be shown to a model. EnvError: no session began.
        """
        if self._is_shared:
            held = await self._join()
            try:
                yield self._tools(held.connection)
            finally:
                await self._leave(held)
            return
        connection = await self._started()
        try:
            yield self._tools(connection)
        finally:
            await connection.aclose()

    def _tools(self, connection: Connection) -> list[McpTool]:
        return [McpTool(one, connection, self._deadline_s) for one in self._listed or ()]

    async def _started(self) -> Connection:
        if self._target.command and self._failed >= self._failed_starts:
            raise EnvError(
                f"{self.label} was started {self._failed} times in vain and is not tried again. "
                f"The last time: {self._last}"
            )
        connection = Connection(self._target, start_s=self._start_s, protocol=self._protocol)
        try:
            await connection.start()
        except AgentRLError as error:
            self._failed += 1
            self._last = error
            raise
        self._failed = 0
        try:
            self._check(connection)
        except BaseException:
            await connection.aclose()
            raise
        return connection

    def _check(self, connection: Connection) -> None:
        listed = read_listing(
            connection.found,
            self.label,
            prefix=self._prefix,
            chosen=self._chosen,
            read_only=self._read_only,
        )
        before = self._listed
        if before is None:
            mutating = [one.remote for one in listed if not one.spec.read_only]
            if self._is_shared and mutating:
                raise ConfigError(
                    f"{self.label} is shared by all episodes, and its tools "
                    f"{', '.join(mutating)} are not marked read-only, so what one episode does "
                    "another would see: name those that change nothing in read_only, choose "
                    "others with tools, or leave out shared"
                )
            self._listed = listed
        elif _by_name(before) != _by_name(listed):  # some list in another order each time
            raise EnvError(
                f"{self.label} offers other tools than in its first session "
                f"({', '.join(one.remote for one in listed)}; then "
                f"{', '.join(one.remote for one in before)}): a policy must be told the same"
            )

    async def _join(self) -> _Shared:
        """The session of the running event loop; a new one if it is gone or hangs."""
        loop = asyncio.get_running_loop()
        for closed in [one for one in self._locks if one.is_closed()]:
            self._locks.pop(closed)
            self._sessions.pop(closed, None)
        async with self._locks.setdefault(loop, asyncio.Lock()):
            held = self._sessions.get(loop)
            if held is None or not held.connection.sound:
                if held is not None:
                    held.retired = True
                    del self._sessions[loop]
                    if not held.users:
                        await held.connection.aclose()
                held = self._sessions[loop] = _Shared(await self._started())
            held.users += 1
            return held

    async def _leave(self, held: _Shared) -> None:
        held.users -= 1
        if held.retired and not held.users:
            await held.connection.aclose()


def _by_name(listed: Sequence[Listed]) -> list[ToolSpec]:
    return sorted((one.spec for one in listed), key=lambda spec: spec.name)


def _load_library() -> None:
    """Import it now, not in the event loop, which it would block for a second."""
    try:
        import jsonschema  # noqa: F401
        from mcp import Client  # noqa: F401
    except ImportError:
        raise MissingDependencyError.for_extra("mcp>=2.3", "mcp", "a tool server (MCP)") from None
