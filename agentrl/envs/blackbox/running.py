"""Ways to run an agent of somebody else's for one episode: a function, or a program.

A function runs in a thread of its own (an async one in an event loop of its own), so it may block
as it likes. A program runs in a process group of its own, which is killed when the episode is over.
Nothing can end a thread: the next thing it asks for is refused, which ends a sensible agent.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from agentrl.core.errors import EnvError
from agentrl.envs.blackbox.exchange import Exchange

__all__ = ["Episode", "Function", "Offered", "Program", "Runs"]

TAIL = 2_000  # characters of what a program printed, in messages
TOKEN_VARIABLES = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "AGENTRL_PROBLEM", "AGENTRL_SEED")


@dataclass(frozen=True, slots=True)
class Episode:
    """What an agent function is given.

    Attributes:
        problem: The task, as in the tasks file.
        base_url: Where its model is: an OpenAI-compatible endpoint.
        api_key: Of this episode alone. Every call with it is a step of this episode.
        seed: For whatever the agent draws.
        model: A name for the request; any other does as well.
    """

    problem: Mapping[str, Any]
    base_url: str
    api_key: str
    seed: int
    model: str = "policy"

    @property
    def client(self) -> dict[str, Any]:
        """Arguments of a client: ``openai.OpenAI(**episode.client)``."""
        return {"base_url": self.base_url, "api_key": self.api_key}


class Runs(Protocol):
    """Runs the agent of one episode; what becomes of it is told to the exchange."""

    async def start(self, exchange: Exchange, base_url: str) -> None: ...

    async def stop(self) -> None: ...


class Offered:
    """Nobody is started: whoever claims the episode at the endpoint plays it."""

    async def start(self, exchange: Exchange, base_url: str) -> None:
        """Nothing."""

    async def stop(self) -> None:
        """Nothing."""


class Function:
    """Calls ``agent(episode)``; what it returns is the result, what it raises a failure."""

    def __init__(self, agent: Callable[[Episode], Any]) -> None:
        self._agent = agent

    async def start(self, exchange: Exchange, base_url: str) -> None:
        episode = Episode(dict(exchange.task.payload), base_url, exchange.key, exchange.seed)
        thread = threading.Thread(
            target=self._run, args=(episode, exchange), name="agent", daemon=True
        )
        thread.start()

    async def stop(self) -> None:
        """Nothing: a thread cannot be ended, only refused."""

    def _run(self, episode: Episode, exchange: Exchange) -> None:
        try:
            result = self._agent(episode)
            if inspect.isawaitable(result):
                result = asyncio.run(_awaited(result))
        except BaseException as error:  # sys.exit too: it ends the agent, not the run
            exchange.fail(f"it raised {type(error).__name__}: {error}")
        else:
            exchange.end(result)


class Program:
    """Runs ``command`` with the endpoint in its environment variables.

    ``OPENAI_BASE_URL``, ``OPENAI_API_KEY``, ``AGENTRL_PROBLEM`` (JSON) and ``AGENTRL_SEED``. The
    last line that it prints is the result, as JSON.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self, exchange: Exchange, base_url: str) -> None:
        values = (
            base_url,
            exchange.key,
            json.dumps(dict(exchange.task.payload)),
            str(exchange.seed),
        )
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=os.environ | dict(zip(TOKEN_VARIABLES, values, strict=True)),
                start_new_session=True,
            )
        except OSError as error:
            raise EnvError(f"cannot run the agent {list(self._command)}: {error}") from None
        self._watching = asyncio.create_task(self._watch(self._process, exchange))

    async def stop(self) -> None:
        process, watching = self._process, self._watching
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its children too
        if watching is not None:
            await asyncio.wait([watching])

    async def _watch(self, process: asyncio.subprocess.Process, exchange: Exchange) -> None:
        assert process.stdout is not None
        printed = b""
        while part := await process.stdout.read(65_536):
            printed = (printed + part)[-1_000_000:]
        code = await process.wait()
        text = printed.decode(errors="replace").rstrip()
        if code != 0:
            exchange.fail(f"it ended with exit status {code}. It printed last:\n{text[-TAIL:]}")
            return
        last = text.splitlines()[-1] if text else ""
        try:
            exchange.end(json.loads(last))
        except json.JSONDecodeError:
            exchange.fail(
                "the last line that it printed must be its result as JSON, like 1.0 or "
                f'{{"reward": 1.0, "success": true}}; it was: {last[:200]!r}'
            )


async def _awaited(work: Any) -> Any:
    return await work
