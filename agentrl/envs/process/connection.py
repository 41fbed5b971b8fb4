"""One worker process as its trainer sees it, from its start to its burial.

Everything here runs in the event loop of the pool's thread, but ``asked``, which any thread may
call to prepare a question.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from agentrl import __version__
from agentrl.core import errors
from agentrl.core.errors import AgentRLError, ConfigError, DataError, EnvDiedError, EnvError
from agentrl.envs.process.codec import restored
from agentrl.envs.process.frames import HEADER, PROTOCOL, frame_length, packed, unpacked
from agentrl.envs.process.launch import Program, Started, exit_words, start

__all__ = ["Answer", "Connection", "Question", "asked"]

LOG_BYTES = 16_384
LOG_LINES = 8
END_S = 1.0
BURIAL_S = 5.0
POLL_S = 0.01
_IDS = count()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call returned, and the environment's tools if they have changed."""

    value: Any
    tools: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A call to a worker, ready to be sent; its future is settled by the pool's thread."""

    id: int
    call: str
    frame: bytes
    future: Future[Answer] = field(default_factory=Future)


def asked(call: str, **carried: Any) -> Question:
    """A question; what it carries has gone through ``plain``.

    Raises:
        DataError: it is too large to send.
    """
    number = next(_IDS)
    question = Question(number, call, packed({"id": number, "call": call, **carried}))
    # Whoever stops waiting does not stop the worker; it is told to drop the episode.
    question.future.set_running_or_notify_cancel()
    return question


class Connection(asyncio.Protocol):
    """A process, the questions that it has not answered and the episodes that it plays.

    Args:
        number: Of the worker, for messages.
        program: What it runs.
        on_death: Called when the process is gone and everything that waited for it knows.
    """

    def __init__(
        self, number: int, program: Program, on_death: Callable[[Connection], None]
    ) -> None:
        self.episodes: set[int] = set()
        self.dropping: set[int] = set()
        self.death: str | None = None
        self.retired = False
        self._number = number
        self._program = program
        self._on_death = on_death
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, Question] = {}
        self._received = bytearray()
        self._log = bytearray()
        self._verdict = ""
        self._hello: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._burial: asyncio.Task[None] | None = None
        self._buried: asyncio.Future[None] = self._loop.create_future()
        self._started: Started | None = None
        self._transport: asyncio.Transport | None = None
        self._exit: int | None = None  # a descriptor that is readable once the process has ended

    @property
    def label(self) -> str:
        """The process in words."""
        pid = "not started" if self._started is None else f"pid {self._started.process.pid}"
        return f"env worker {self._number} ({pid})"

    @property
    def dying(self) -> bool:
        """The process has ended, or is being ended; those who wait for it are yet to be told."""
        return self._burial is not None

    async def buried(self) -> None:
        """Wait until ``death`` is known."""
        await asyncio.wait([self._buried])

    async def open(self) -> dict[str, Any]:
        """Start the process and make the environment's factory in it.

        Returns:
            What it says of the factory: ``splits``, ``demonstrates``, ``tools``.

        Raises:
            ConfigError: no such interpreter, another protocol; AgentRLError: what making the
                factory raised. EnvDiedError: the process died, or was not ready in time.
        """
        limit = self._program.workers.start_timeout_s
        self._started = start(self._program.workers)
        try:
            async with asyncio.timeout(limit):
                await self._connect(self._started)
                self._check(await asyncio.shield(self._hello))
                question = asked("open", **self._program.opening())
                self.send(question)
                ready: dict[str, Any] = (await asyncio.wrap_future(question.future)).value
                return ready
        except TimeoutError:
            await self.end(f"was not ready within {limit:g} s and was killed", at_once=True)
            raise EnvDiedError(str(self.death)) from None
        except BaseException:
            await self.end("was not wanted any more", at_once=True)
            raise

    async def _connect(self, started: Started) -> None:
        self._loop.add_reader(started.log, self._read_log)
        if hasattr(os, "pidfd_open"):
            try:
                self._exit = os.pidfd_open(started.process.pid)
                self._loop.add_reader(self._exit, self._bury)
            except OSError:
                self._exit = None  # some sandboxes lack it; the end of the socket is seen as well
        await self._loop.create_connection(lambda: self, sock=started.channel)

    def _check(self, hello: dict[str, Any]) -> None:
        spoken, version = hello.get("hello"), hello.get("agentrl")
        if (spoken, version) != (PROTOCOL, __version__):
            raise ConfigError(
                f"{self.label} speaks protocol {spoken!r} of agentrl {version!r}, expected "
                f"protocol {PROTOCOL} of agentrl {__version__}: let it run the agentrl of its "
                "trainer"
            )

    def send(self, question: Question) -> None:
        """Ask; if the process is gone the question is answered with that."""
        if self.death is not None or self._transport is None:
            question.future.set_exception(EnvDiedError(str(self.death)))
            return
        self._pending[question.id] = question
        if not self._transport.is_closing():  # or else its burial answers
            self._transport.write(question.frame)

    async def running(self) -> dict[str, Any] | None:
        """Which call holds the worker's event loop; ``None``: it does not answer at all."""
        question = asked("running")
        self.send(question)
        try:
            async with asyncio.timeout(END_S):
                found: dict[str, Any] = (await asyncio.wrap_future(question.future)).value
                return found
        except (TimeoutError, EnvDiedError):
            return None

    async def end(self, verdict: str, *, at_once: bool = False) -> None:
        """End the process: it is asked to, then told, then killed; returns when it is gone."""
        if self._started is None:
            return
        if self.death is None and not self._verdict:
            self._verdict = verdict
        if at_once:
            self._signal(signal.SIGKILL)
        elif self.death is None and self._transport is not None:
            self._transport.write(packed({"id": next(_IDS), "call": "bye"}))
            if not await self._gone(self._program.workers.grace_s + END_S):
                self._signal(signal.SIGTERM)
            if not await self._gone(END_S):
                self._signal(signal.SIGKILL)
        self._bury()
        await asyncio.shield(self._buried)

    async def _gone(self, seconds: float) -> bool:
        await asyncio.wait([self._buried], timeout=seconds)
        return self.death is not None

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            while len(self._received) >= HEADER.size:
                end = HEADER.size + frame_length(self._received[: HEADER.size])
                if len(self._received) < end:
                    return
                message = unpacked(self._received[HEADER.size : end])
                del self._received[:end]
                self._take(message)
        except DataError as error:
            self._received.clear()
            self._verdict = self._verdict or f"broke the protocol and was killed: {error}"
            self._signal(signal.SIGKILL)

    def connection_lost(self, error: Exception | None) -> None:
        self._bury()

    def _take(self, message: dict[str, Any]) -> None:
        if "hello" in message and not self._hello.done():
            self._hello.set_result(message)
            return
        question = self._pending.pop(message.get("id", -1), None)
        if question is None:
            return
        try:
            if "error" in message:
                raise self._error(question.call, message["error"])
            tools = message.get("tools")
            answer = Answer(
                restored(message.get("value")), None if tools is None else restored(tools)
            )
        except AgentRLError as error:
            question.future.set_exception(error)
        else:
            question.future.set_result(answer)

    def _error(self, call: str, described: dict[str, str]) -> AgentRLError:
        """What the worker raised; outside an episode a bug's traceback is part of the message."""
        kind = getattr(errors, described["kind"], None) if described["kind"] else None
        if kind is not None:
            known: AgentRLError = kind(described["text"])
            return known
        text = f"{call} raised {described['name']}: {described['text']}"
        trace = f"in {self.label}:\n{described['trace']}"
        if call in ("open", "tasks", "demonstrate", "next"):
            return EnvError(f"{text}\n{trace}")
        error = EnvError(text)
        error.add_note(trace)
        return error

    # The end.

    def _signal(self, number: signal.Signals) -> None:
        """To the process and what its environments have started.

        It is not reaped yet, so the id of its group is still its own.
        """
        if self._started is not None and self.death is None:
            try:
                os.killpg(self._started.process.pid, number)
            except (ProcessLookupError, PermissionError):
                return

    def _bury(self) -> None:
        if self._exit is not None:
            self._loop.remove_reader(self._exit)
        if self._burial is None:
            self._burial = self._loop.create_task(self._end_of_life())

    async def _end_of_life(self) -> None:
        assert self._started is not None
        process = self._started.process
        if not await self._exited(END_S):
            self._signal(signal.SIGKILL)
            await self._exited(BURIAL_S)
        self._signal(signal.SIGKILL)  # what environments have started and left behind
        code = process.poll()
        self._read_log()
        self.death = f"{self.label} {self._verdict or exit_words(code)}{self._last_words()}"
        self._close(self._started)
        if not self._hello.done():
            self._hello.set_exception(EnvDiedError(self.death))
            self._hello.exception()  # the opening may have been given up: nobody need look
        pending, self._pending = list(self._pending.values()), {}
        for question in pending:
            question.future.set_exception(EnvDiedError(self.death))
        self.episodes.clear()
        self._buried.set_result(None)
        self._on_death(self)

    async def _exited(self, seconds: float) -> bool:
        """Whether the process has ended; it is not reaped, for that would free its id."""
        assert self._started is not None
        until = time.monotonic() + seconds
        while not _is_zombie(self._started.process.pid):
            if time.monotonic() > until:
                return False
            await asyncio.sleep(POLL_S)
        return True

    def _close(self, started: Started) -> None:
        self._loop.remove_reader(started.log)
        os.close(started.log)
        if self._exit is not None:
            os.close(self._exit)
            self._exit = None
        if self._transport is None:
            started.channel.close()
        else:
            self._transport.abort()

    def _read_log(self) -> None:
        """Keep the end of what the process prints."""
        assert self._started is not None
        try:
            while piece := os.read(self._started.log, 65_536):
                self._log += piece
                del self._log[:-LOG_BYTES]
        except BlockingIOError:
            return
        self._loop.remove_reader(self._started.log)  # nobody holds the other end any more

    def _last_words(self) -> str:
        lines = self._log.decode("utf-8", "replace").rstrip().splitlines()[-LOG_LINES:]
        if not lines:
            return "\nIt had printed nothing."
        return "\nThe last that it printed:\n" + "\n".join(f"  {line}" for line in lines)


def _is_zombie(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True  # somebody else has reaped it
