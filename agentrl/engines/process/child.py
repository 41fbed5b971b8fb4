"""One process of an engine as its trainer sees it, from its start to its burial.

Everything here runs in the event loop of the engine's own thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from agentrl.core.errors import EngineError
from agentrl.core.trajectory import Sample
from agentrl.engines.process.weights import Publication
from agentrl.engines.process.worker import LINE_BYTES, line_of

__all__ = ["Call", "Child", "Limits", "Program"]

END_S = 2.0
POLL_S = 0.02
LOG_BYTES = 4096
LOG_LINES = 12
_NUMBERS = count()


@dataclass(frozen=True, slots=True)
class Limits:
    """How long the process may take; what takes longer is killed and started again.

    Attributes:
        start_s: From its start until it can sample.
        weights_s: To take up weights, with the forward pass that runs when they come.
        rebirths: Processes in a row that may die without having given one answer.
    """

    start_s: float = 300.0
    weights_s: float = 120.0
    rebirths: int = 3


@dataclass(frozen=True, slots=True)
class Program:
    """What every process of an engine runs.

    Attributes:
        host: ``module:function`` that makes what samples.
        options: Keyword arguments for it, JSON-like.
        threads: Threads that it computes with; 0: it is not told.
    """

    host: str
    options: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 0


@dataclass(slots=True, eq=False)
class Call:
    """One ``sample``. Its future is settled by the engine's thread."""

    asked: Mapping[str, Any]
    answer: Future[Sample] = field(default_factory=Future)
    number: int = field(default_factory=lambda: next(_NUMBERS))

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Child:
    """A process, and the calls that it has not answered.

    Args:
        program: What it runs.
        folder: Private to engine and trainer; its log is written there.
        limits: How long it may take.
        on_taken_up: Told the number of each publication that it uses from now on.
        on_work: Told what it has done so far, with each answer.
    """

    def __init__(
        self,
        program: Program,
        folder: Path,
        limits: Limits,
        *,
        on_taken_up: Callable[[int], None],
        on_work: Callable[[Mapping[str, float]], None],
    ) -> None:
        self._program, self._folder, self._limits = program, folder, limits
        self._on_taken_up, self._on_work = on_taken_up, on_work
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, Call] = {}
        self._verdict = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._log = folder / f"engine-{next(_NUMBERS)}.log"
        self.answered = 0
        self.death: str | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def open(self, first: Publication) -> Mapping[str, Any]:
        """Start the process; returns what it says of itself once it can sample.

        Raises:
            EngineError: it died, or was not ready in time.
        """
        limit = self._limits.start_s
        try:
            async with asyncio.timeout(limit):
                self._reader, self._writer = await self._start()
                self._write(
                    {
                        "host": self._program.host,
                        "options": dict(self._program.options),
                        "file": str(first.path),
                        "version": first.version,
                    }
                )
                line = await self._reader.readline()
        except TimeoutError:
            await self.bury(f"could not sample within {limit:g} s and was killed", at_once=True)
        except ConnectionError:
            await self.bury("")
        except OSError as error:
            await self.bury(f"could not be started: {error}", at_once=True)
        else:
            if line:
                ready: Mapping[str, Any] = json.loads(line)["ready"]
                return ready
            await self.bury("")
        raise EngineError(str(self.death))

    async def _start(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ours, theirs = socket.socketpair()
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(  # noqa: ASYNC220 - a few milliseconds, in a loop
                    # whose only other work is this process
                    _command(theirs.fileno(), self._folder),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C is the trainer's alone
                    env=_environment(self._program.threads),
                )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        return await asyncio.open_connection(sock=ours, limit=LINE_BYTES)

    async def serve(self) -> None:
        """Take what it says until it is gone; then every call has failed and ``death`` is known."""
        assert self._reader is not None
        try:
            while line := await self._reader.readline():
                self._take(json.loads(line))
        except ConnectionError:
            pass  # it is gone; how it ended is what its exit code says
        except ValueError as error:
            self._verdict = self._verdict or f"said what is no message, and was killed: {error}"
            self._kill()
        await self.bury("")

    def _take(self, message: Mapping[str, Any]) -> None:
        if "work" in message:
            self._on_work(message["work"])
        if "weights" in message:
            self._timers.pop(message["weights"]).cancel()
            self._on_taken_up(message["weights"])
            return
        call = self._calls.pop(message["id"], None)
        self.answered += 1
        if call is None or call.answer.done():
            return  # nobody waits for it any more
        if "sample" in message:
            ids, logprobs, versions, finish = message["sample"]
            spans = tuple((start, version) for start, version in versions)
            call.answer.set_result(Sample(tuple(ids), tuple(logprobs), spans, finish))
        elif "error" in message:
            call.fail(EngineError(message["error"]))
        else:
            call.fail(RuntimeError(f"a bug in the engine's process:\n{message['bug']}"))

    def send(self, call: Call) -> None:
        """Ask; if the process is gone, the call fails with that."""
        if self.death is not None:
            call.fail(EngineError(self.death))
            return
        self._calls[call.number] = call
        self._write({"id": call.number, "sample": call.asked})

    def cancel(self, call: Call) -> None:
        if self._calls.pop(call.number, None) is not None:
            self._write({"cancel": call.number})

    def release(self, episode_id: str) -> None:
        self._write({"release": episode_id})

    def give(self, weights: Publication) -> None:
        """Have it take up weights, between two of its forward passes."""
        self._write(
            {"weights": weights.number, "version": weights.version, "file": str(weights.path)}
        )
        self._timers[weights.number] = self._loop.call_later(
            self._limits.weights_s, self._too_slow, weights.version
        )

    def _too_slow(self, version: int) -> None:
        self._verdict = (
            f"did not take up version {version} of the weights within "
            f"{self._limits.weights_s:g} s and was killed"
        )
        self._kill()

    def _write(self, message: Mapping[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(line_of(message))

    def _kill(self) -> None:
        """It leads a group of its own and is not reaped yet, so its id is still its own."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """It is told to end, then killed; returns when it is gone."""
        self._write({"bye": True})
        await self.bury("was told to end")

    async def bury(self, verdict: str, *, at_once: bool = False) -> None:
        """Wait for the end of the process, then tell all who wait for it."""
        if self.death is not None:
            return
        self._verdict = self._verdict or verdict
        process = self._process
        if process is not None:
            waited = 0.0
            while not at_once and process.poll() is None and waited < END_S:
                await asyncio.sleep(POLL_S)
                waited += POLL_S
            self._kill()
            while process.poll() is None:  # noqa: ASYNC110 - nothing tells of its end
                await asyncio.sleep(POLL_S)
        if self.death is not None:
            return  # buried by another meanwhile
        code = None if process is None else process.returncode
        self.death = f"the engine's process (pid {self.pid}) {self._verdict or _words(code)}"
        self.death += _last_words(self._log)
        self._log.unlink(missing_ok=True)
        for timer in self._timers.values():
            timer.cancel()
        if self._writer is not None:
            self._writer.close()
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            call.fail(EngineError(self.death))


def _command(channel: int, folder: Path) -> list[str]:
    run = "import sys; from agentrl.engines.process.worker import main; main(sys.argv[1:])"
    told = [str(channel), str(os.getpid()), str(folder)]
    return [sys.executable, "-X", "faulthandler", "-c", run, *told]


def _environment(threads: int) -> dict[str, str]:
    paths = [one for one in sys.path if one]
    told = {"PYTHONPATH": os.pathsep.join(paths)}  # what the trainer imports, it can import
    if threads:
        told["OMP_NUM_THREADS"] = str(threads)
    return os.environ | told


def _words(code: int | None) -> str:
    if code is not None and code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    return f"ended with exit code {code}"


def _last_words(log: Path) -> str:
    try:
        text = log.read_bytes()[-LOG_BYTES:].decode("utf-8", "replace")
    except OSError:
        return ""
    lines = text.rstrip().splitlines()[-LOG_LINES:]
    return "".join(f"\n  {line}" for line in ["The last that it printed:", *lines] if lines)
