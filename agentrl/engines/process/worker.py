"""The program of an engine's process: samples for the trainer that started it.

Messages are JSON objects, one a line, over a socket of their own. The trainer says first what to
host, ``{"host": "module:function", "options": {...}, "file": ..., "version": 3}``, and is answered
``{"ready": {...}}``. Then, in any order:

| trainer | process |
|---|---|
| ``{"id": 7, "sample": {...}}`` | ``{"id": 7, "sample": [...], "work": {...}}`` |
| | or ``{"id": 7, "error": "...", "work": {...}}``: an ``EngineError`` |
| | or ``{"id": 7, "bug": "..."}``: a traceback |
| ``{"cancel": 7}``, ``{"release": "episode"}`` | nothing |
| ``{"weights": 2, "version": 4, "file": ...}`` | ``{"weights": 2}``, once they are in use |
| ``{"bye": true}`` | nothing: it ends |

Messages are taken in the order they were sent: what is asked after new weights is sampled with
them, or newer ones. The process ends when its trainer does, and takes the folder along.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from agentrl.core.errors import EngineError
from agentrl.core.protocols import Engine
from agentrl.core.trajectory import Sampling

__all__ = ["LINE_BYTES", "Host", "main"]

LINE_BYTES = 2**26
PARENT_CHECK_S = 1.0
PR_SET_PDEATHSIG = 1  # of prctl(2)


class Host(Protocol):
    """What samples in the process: a function ``(folder, file, version, **options)`` makes it."""

    @property
    def engine(self) -> Engine: ...

    def take_up(self, file: Path, version: int) -> None:
        """Load weights; requests in flight go on with them. May be called while a pass runs."""
        ...

    def work(self) -> Mapping[str, float]:
        """What the engine has done so far: the fields of ``engines.work.EngineWork``."""
        ...


class _Worker:
    """Answers what the trainer asks."""

    def __init__(self, host: Host, writer: asyncio.StreamWriter) -> None:
        self._host = host
        self._writer = writer
        self._calls: dict[int, asyncio.Task[None]] = {}

    def send(self, message: Mapping[str, Any]) -> None:
        if not self._writer.is_closing():
            self._writer.write(line_of(message))

    def take(self, message: Mapping[str, Any]) -> None:
        """Begin to answer."""
        if "sample" in message:
            number = message["id"]
            task = asyncio.create_task(self._sample(number, message["sample"]))
            self._calls[number] = task
            task.add_done_callback(lambda _: self._calls.pop(number, None))
        elif "cancel" in message:
            call = self._calls.get(message["cancel"])
            if call is not None:
                call.cancel()
        elif "release" in message:
            self._host.engine.release(message["release"])
        elif "weights" in message:
            self._host.take_up(Path(message["file"]), message["version"])
            self.send({"weights": message["weights"]})

    async def _sample(self, number: int, asked: Mapping[str, Any]) -> None:
        try:
            sample = await self._host.engine.sample(
                asked["prompt"],
                sampling=Sampling(*asked["sampling"]),
                stop_token_ids=asked["stop"],
                seed=asked["seed"],
                episode_id=asked["episode"],
            )
        except EngineError as error:
            self.send({"id": number, "error": str(error), "work": self._host.work()})
        except Exception:
            self.send({"id": number, "bug": traceback.format_exc()})
        else:
            fields = [sample.token_ids, sample.logprobs, sample.versions, sample.finish_reason]
            self.send({"id": number, "sample": fields, "work": self._host.work()})


def line_of(message: Mapping[str, Any]) -> bytes:
    """A message as it is sent. JSON writes a float so that it is read back bit for bit."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


async def _serve(channel: socket.socket, folder: Path) -> None:
    """Until the trainer says bye, or is gone."""
    reader, writer = await asyncio.open_connection(sock=channel, limit=LINE_BYTES)
    first = await _line(reader)
    if not first:
        _end(folder)
    wanted = json.loads(first)
    module, _, name = wanted["host"].partition(":")
    maker = getattr(importlib.import_module(module), name)
    host: Host = maker(folder, Path(wanted["file"]), wanted["version"], **wanted["options"])
    worker = _Worker(host, writer)
    context = getattr(host.engine, "context_tokens", None)
    worker.send({"ready": {"context_tokens": context}})
    while line := await _line(reader):
        message = json.loads(line)
        if "bye" in message:
            os._exit(0)  # nothing is held that has to be closed, and threads need not be waited for
        worker.take(message)
    _end(folder)


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The next message; nothing once the trainer is gone, however it went."""
    try:
        return await reader.readline()
    except ConnectionError:  # it left answers unread
        return b""


def _end(folder: Path) -> None:
    """The trainer is gone: nobody else is left to remove what was its own."""
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _watch(parent: int, folder: Path) -> None:
    """End the process when its trainer is gone, also while it loads or computes.

    The socket tells as well, but not where a fork of the trainer holds its other end.
    """
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    _end(folder)


def _go_on_when_orphaned() -> None:
    """Have the kernel continue this process when its trainer dies: a stopped one sees nothing."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGCONT)
    except (ImportError, OSError, AttributeError):
        return  # not Linux: only stopped processes are left


def main(arguments: Sequence[str]) -> None:
    """Serve the trainer.

    Args:
        arguments: The socket's file descriptor, the trainer's process id, the private folder.
    """
    descriptor, parent, folder = int(arguments[0]), int(arguments[1]), Path(arguments[2])
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    channel.setblocking(False)
    _go_on_when_orphaned()
    threading.Thread(target=_watch, args=(parent, folder), name="trainer", daemon=True).start()
    asyncio.run(_serve(channel, folder))


if __name__ == "__main__":
    main(sys.argv[1:])
