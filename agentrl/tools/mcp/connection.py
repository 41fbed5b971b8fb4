"""One session with a server, held by an asyncio task of its own.

The library's contexts must be left by the task that entered them; an episode may be closed by
another than opened it. So a task holds the session, and others call through it.
"""

from __future__ import annotations

import asyncio
import math
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import IO, Any

from agentrl.core.errors import AgentRLError, ConfigError, EnvError, ToolError
from agentrl.tools.mcp.target import Target
from agentrl.tools.text import clean

__all__ = ["Connection"]

PAGES = 100
CLOSE_S = 15.0  # above what the library takes to kill a server that ignores everything
LAST_WORDS = 1_000

# asyncio holds only weak references to tasks; a session that is being closed is held here.
_CLOSING: set[asyncio.Task[None]] = set()


class Connection:
    """A session that was begun; ``aclose`` always, also if ``start`` failed."""

    def __init__(self, target: Target, *, start_s: float, protocol: str) -> None:
        self.label = target.label
        self.found: Sequence[Any] = ()
        self._target = target
        self._start_s = start_s
        self._protocol = protocol
        self._client: Any = None
        self._scope: Any = None
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._heard = _Heard()
        self._errors: IO[bytes] | None = None
        self._failure: AgentRLError | None = None
        self._doubtful = False

    @property
    def sound(self) -> bool:
        """Whether another episode may use it: it lives, and no call was given up."""
        return self._task is not None and not self._task.done() and not self._doubtful

    async def start(self) -> None:
        """Begin the session and list the tools, into ``found``.

        Raises:
            ConfigError: what cannot become right by trying again. EnvError: what can.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the session
        self._task = asyncio.create_task(self._hold(ready), name=self.label)
        try:
            await ready
        except BaseException:
            await self.aclose()
            raise

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """The ``CallToolResult`` of a call.

        Raises:
            ToolError: the server says that the arguments are wrong. EnvError: anything else.
        """
        from mcp import MCPError
        from mcp_types import INVALID_PARAMS

        if self._task is None or self._task.done() or self._client is None:
            raise self._failure or EnvError(self._said("its session is over"))
        try:
            return await self._client.call_tool(name, arguments)
        except asyncio.CancelledError:
            self._doubtful = True  # it may hang in this call for ever
            raise
        except MCPError as error:
            if error.code == INVALID_PARAMS:
                raise ToolError(self._target.without_secrets(error.message)) from None
            self._doubtful = True
            raise EnvError(self._said(f"failed in its tool '{name}': {_reason(error)}")) from error
        except Exception as error:
            self._doubtful = True
            raise EnvError(
                self._said(f"gave a wrong answer for its tool '{name}': {_reason(error)}")
            ) from error

    async def aclose(self) -> None:
        """End the session, and the server with it if it was started for it.

        Raises:
            EnvError: it did not end in time.
        """
        task = self._task
        if task is None:
            return
        self._stop.set()
        if not task.done():
            _CLOSING.add(task)
            task.add_done_callback(_CLOSING.discard)
            if self._client is None and self._scope is not None:
                self._scope.cancel()  # it is still starting
            await asyncio.wait((task,), timeout=CLOSE_S)
        if not task.done():
            task.cancel()
            raise EnvError(self._said(f"did not end within {CLOSE_S:g} s"))

    async def _hold(self, ready: asyncio.Future[None]) -> None:
        """Open, wait for ``aclose``, close; never raises, for nobody awaits it."""
        try:
            await self._held(ready)
        except Exception as error:
            self._failure = self._blamed(error)
        else:
            if not ready.done() and not self._stop.is_set():
                text = f"did not begin a session within {self._start_s:g} s"
                self._failure = EnvError(self._said(text))
        finally:
            self._client = None
            if not ready.done():
                ready.set_exception(self._failure or EnvError(self._said("was given up")))
                ready.exception()  # read here: who waited may be gone
            if self._errors is not None:
                self._errors.close()

    async def _held(self, ready: asyncio.Future[None]) -> None:
        import anyio
        from mcp import Client

        from agentrl import __version__

        assert self._errors is not None
        if self._stop.is_set():
            return  # given up before it began
        with anyio.CancelScope(deadline=anyio.current_time() + self._start_s) as self._scope:
            transport = _overheard(self._target.transport(self._errors), self._heard)
            async with Client(
                transport,
                mode=self._protocol,
                cache=None,
                client_info=_implementation(__version__),
            ) as client:
                self.found = await _listed(client, self.label, self._heard)
                self._scope.deadline = math.inf
                self._client = client
                if not ready.done():
                    ready.set_result(None)
                await self._stop.wait()

    def _blamed(self, error: BaseException) -> AgentRLError:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, AgentRLError):
            return error
        if isinstance(error, FileNotFoundError | PermissionError):
            return ConfigError(self._said(f"cannot be started: {error}"))
        begun = "broke its session" if self._client is not None else "did not begin a session"
        blamed = EnvError(self._said(f"{begun}: {_reason(error)}"))
        blamed.__cause__ = error
        return blamed

    def _said(self, what: str) -> str:
        """The message, and what the server printed, which mostly says why."""
        text = f"{self.label} {what}"
        if self._heard.rubbish:
            text += (
                f". It printed on standard output what is no message: {self._heard.rubbish!r}; "
                "only the protocol may be written there"
            )
        words = ""
        if self._errors is not None and not self._errors.closed:
            file = self._errors.fileno()  # read without seeking: the server writes at its position
            start = max(0, os.fstat(file).st_size - LAST_WORDS)
            words = clean(os.pread(file, LAST_WORDS, start).decode("utf-8", "replace")).strip()
        if words:
            text += f". Its last words on standard error: {words}"
        return self._target.without_secrets(text)


class _Heard:
    """What passed from the server that errors should name."""

    def __init__(self) -> None:
        self.rubbish = ""
        self.names: list[str] = []

    def message(self, message: Any) -> None:
        if isinstance(message, Exception):
            lines: list[Any] = getattr(message, "errors", list)()
            text = str(lines[0].get("input", message) if lines else message)
            self.rubbish = self.rubbish or text[:200].strip()
            return
        result = getattr(getattr(message, "message", None), "result", None)
        if isinstance(result, dict) and isinstance(result.get("tools"), list):
            tools = result["tools"]
            self.names = [str(one.get("name") if isinstance(one, dict) else one) for one in tools]


class _Ear:
    """The library's stream of messages; what passes is heard too."""

    def __init__(self, stream: Any, heard: _Heard) -> None:
        self._stream = stream
        self._heard = heard

    async def receive(self) -> Any:
        message = await self._stream.receive()
        self._heard.message(message)
        return message

    def __aiter__(self) -> _Ear:
        return self

    async def __anext__(self) -> Any:
        message = await self._stream.__anext__()
        self._heard.message(message)
        return message

    async def __aenter__(self) -> _Ear:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *about: Any) -> Any:
        return await self._stream.__aexit__(*about)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@asynccontextmanager
async def _overheard(transport: Any, heard: _Heard) -> AsyncIterator[Any]:
    async with transport as (incoming, outgoing):
        yield _Ear(incoming, heard), outgoing


async def _listed(client: Any, label: str, heard: _Heard) -> Sequence[Any]:
    """All tools, page by page."""
    from pydantic import ValidationError

    found: list[Any] = []
    cursor: str | None = None
    for _ in range(PAGES):
        try:
            page = await client.list_tools(cursor=cursor)
        except ValidationError as error:
            raise ConfigError(f"{label} lists its tools wrongly: {_wrong(error, heard)}") from None
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return found
    raise ConfigError(f"{label} lists tools without end: {len(found)} on {PAGES} pages")


def _wrong(error: Any, heard: _Heard) -> str:
    """Which tool it is, and what is wrong with it."""
    first = error.errors()[0]
    where = first["loc"]
    place = ".".join(map(str, where))
    if len(where) > 1 and where[0] == "tools" and isinstance(where[1], int):
        name = heard.names[where[1]] if where[1] < len(heard.names) else f"number {where[1]}"
        place = f"the tool '{name}', {'.'.join(map(str, where[2:]))}"
    return f"{place}: {first['msg']}, got {first['input']!r:.200}"


def _implementation(version: str) -> Any:
    from mcp_types import Implementation

    return Implementation(name="agentrl", version=version)


def _reason(error: BaseException) -> str:
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, MCPError):
        if error.code == CONNECTION_CLOSED:
            return f"the connection was closed ({error.message})"
        return f"it answered with error {error.code}: {error.message}"
    return f"{type(error).__name__}: {error}"
