"""The program of a worker process: plays episodes for the trainer that started it.

Environments run in this process's event loop, several episodes at a time; one that blocks, blocks
this process alone. A thread of its own reads what the trainer asks, so that the worker can say
where it is stuck, and ends when the trainer is gone. What environments print goes to the standard
streams and never into the protocol, which has a socket of its own.

Standard library and ``agentrl.core`` only: an interpreter with nothing installed can run it.
"""

from __future__ import annotations

import asyncio
import os
import platform
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import agentrl
from agentrl.core import errors
from agentrl.core.errors import AgentRLError, DataError, EnvError, UnknownPluginError
from agentrl.core.message import ToolSpec
from agentrl.core.protocols import Demonstration, Demonstrator
from agentrl.core.task import Task
from agentrl.envs.process.codec import plain, restored, sendable_observation, sendable_result
from agentrl.envs.process.frames import HEADER, PROTOCOL, frame_length, packed, unpacked
from agentrl.registry import make

__all__ = ["main"]

TASKS_PER_PAGE = 256
PAGE_BYTES = 4 * 2**20
STEPS_PER_PAGE = 16
PARENT_CHECK_S = 2.0
FRAMES_SHOWN = 4
PR_SET_PDEATHSIG = 1  # of prctl(2)
LONGEST_ERROR = 20_000
_KINDS = {name: kind for name in errors.__all__ if isinstance(kind := getattr(errors, name), type)}


@dataclass(slots=True)
class _Episode:
    """An environment, or the iterator of a demonstration, and who waits for it."""

    thing: Any = None
    order: asyncio.Lock = field(default_factory=asyncio.Lock)
    answering: set[asyncio.Task[None]] = field(default_factory=set)
    tools: Sequence[ToolSpec] = ()
    closing: bool = False
    dropped: bool = False
    raised: Exception | None = None


class _Worker:
    """Answers what the trainer asks; everything but ``send`` and ``running`` is the loop's."""

    def __init__(self, channel: socket.socket, grace_s: float) -> None:
        self._channel = channel
        self._sending = threading.Lock()
        self._grace_s = grace_s
        self._factory: Any = None
        self._listed: dict[str, Sequence[Task]] = {}
        self._episodes: dict[int, _Episode] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None
        self.over = asyncio.Event()
        self.abandoned = self.orphaned = False

    def send(self, message: Mapping[str, Any]) -> None:
        self._write(packed(message))

    def _write(self, frame: bytes) -> None:
        with self._sending:
            try:
                self._channel.sendall(frame)
            except OSError:
                return  # the trainer is gone; the reading thread sees it too, and ends the process

    def take(self, asked: dict[str, Any]) -> None:
        """Begin to answer."""
        call = asked["call"]
        if call == "bye":
            self.end()
            return
        number: int = asked.get("episode", -1)
        if call in ("make", "demonstrate"):
            self._episodes[number] = _Episode()
        episode = self._episodes.get(number)
        if call == "drop":
            self._cancel(episode)  # now: what was asked just before must not begin any more
            episode = None
        name = call if number < 0 else f"episode {number}"
        task = asyncio.create_task(self._answer(asked, episode), name=name)
        answering = self._tasks if episode is None else episode.answering
        answering.add(task)
        task.add_done_callback(answering.discard)

    def end(self) -> None:
        """Close every episode, then end the process."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())

    async def _end(self) -> None:
        await asyncio.gather(*(self._drop(number) for number in list(self._episodes)))
        self.over.set()

    async def _answer(self, asked: dict[str, Any], episode: _Episode | None) -> None:
        call = asked["call"]
        try:
            answer = {"id": asked["id"], "value": _sent(call, await self._do(call, asked, episode))}
            if episode is not None and call in ("make", "reset", "step", "replay"):
                answer |= self._new_tools(episode)
            frame = packed(answer)
        except BaseException as error:  # whatever it is, it is foreign code's, and has an owner
            if episode is not None and episode.dropped:
                return  # nobody waits for it any more
            frame = packed({"id": asked["id"], "error": _described(call, error)})
        self._write(frame)

    async def _do(self, call: str, asked: dict[str, Any], episode: _Episode | None) -> Any:
        if call == "open":
            return self._open(asked)
        if call == "tasks":
            return self._page(asked["split"], asked["start"])
        if call == "drop":
            return {"abandoned": await self._drop(asked["episode"])}
        if episode is None:
            raise EnvError(f"{call} called on an episode that this process does not play")
        async with episode.order:
            return await self._play(call, asked, episode)

    async def _play(self, call: str, asked: dict[str, Any], episode: _Episode) -> Any:
        if call == "make":
            episode.thing = await self._factory.make(restored(asked["task"]), seed=asked["seed"])
            return {"replays": hasattr(episode.thing, "replay")}
        if call == "demonstrate":
            episode.thing = iter(
                self._factory.demonstrate(
                    restored(asked["task"]), seed=asked["seed"], noise=asked["noise"]
                )
            )
            return None
        if call == "next":
            return self._next_steps(asked["episode"], episode)
        if call == "close":
            episode.closing = True
            try:
                return await episode.thing.aclose()
            finally:
                self._episodes.pop(asked["episode"], None)
        if call == "reset":
            return sendable_observation(await episode.thing.reset(), call)
        if call == "step":
            return sendable_result(await episode.thing.step(restored(asked["given"])), call)
        return await episode.thing.replay(restored(asked["given"]))

    def _open(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Make the factory; under the name's target where the name is not registered here."""
        if asked["path"] is not None:
            sys.path[:] = asked["path"]
        options = restored(asked["options"])
        try:
            self._factory = make("env", asked["name"], options)
        except UnknownPluginError:
            if asked["target"] is None:
                raise
            self._factory = make("env", asked["target"], options)
        return {
            "splits": self._factory.splits,
            "demonstrates": isinstance(self._factory, Demonstrator),
            "tools": tuple(getattr(self._factory, "tools", ())),
        }

    def _page(self, split: str, start: int) -> dict[str, Any]:
        if split not in self._listed:
            self._listed[split] = self._factory.tasks(split)
        tasks = self._listed[split]
        page: list[Task] = []
        size = 0
        for task in tasks[start : start + TASKS_PER_PAGE]:
            size += len(packed({"task": _sent("tasks", task)}))
            if page and size > PAGE_BYTES:
                break
            page.append(task)
        return {"count": len(tasks), "tasks": page}

    def _next_steps(self, number: int, episode: _Episode) -> dict[str, Any]:
        """A few more steps of a demonstration; an error comes after what came before it."""
        if episode.raised is not None:
            raise episode.raised
        steps: list[Demonstration] = []
        try:
            steps.extend(islice(episode.thing, STEPS_PER_PAGE))
        except Exception as error:
            episode.raised = error
            if not steps:
                raise
        done = len(steps) < STEPS_PER_PAGE and episode.raised is None
        if done:
            self._episodes.pop(number, None)
        return {"steps": steps, "done": done}

    def _new_tools(self, episode: _Episode) -> dict[str, Any]:
        tools = list(episode.thing.tools)
        if tools == episode.tools:
            return {}
        episode.tools = tools
        return {"tools": plain(tools)}

    def _cancel(self, episode: _Episode | None) -> None:
        if episode is not None and not episode.dropped:
            episode.dropped = True
            for one in episode.answering:
                one.cancel()

    async def _drop(self, number: int) -> bool:
        """Cancel and close an episode; True if it would not end."""
        episode = self._episodes.pop(number, None)
        if episode is None:
            return False
        self._cancel(episode)
        stuck = await self._outlast(episode.answering)
        if not stuck and not episode.closing and hasattr(episode.thing, "aclose"):
            closing = asyncio.create_task(_closed(episode.thing), name=f"episode {number}")
            stuck = await self._outlast({closing})
        self.abandoned = self.abandoned or stuck
        return stuck

    async def _outlast(self, tasks: set[asyncio.Task[None]]) -> bool:
        """Wait for tasks, though not for ever; True if some are left, which ignore a cancel."""
        if not tasks:
            return False
        _, left = await asyncio.wait(set(tasks), timeout=self._grace_s)
        for one in left:
            one.cancel()
        return bool(left)

    def running(self, loop: asyncio.AbstractEventLoop, thread: int) -> dict[str, Any]:
        """Which call holds the event loop at this moment and where; asked by another thread."""
        task = asyncio.current_task(loop)
        top = sys._current_frames().get(thread)
        stack = [] if top is None else traceback.extract_stack(top)[-FRAMES_SHOWN:]
        return {
            "name": None if task is None else task.get_name(),
            "stack": [f"{one.filename}:{one.lineno} in {one.name}" for one in stack],
        }


def _sent(call: str, value: Any) -> Any:
    try:
        return plain(value)
    except DataError as error:
        raise EnvError(f"{call} returned what cannot leave its process: {error}") from None


async def _closed(env: Any) -> None:
    """Close an environment that nobody waits for; what it raises is for the log."""
    try:
        await env.aclose()
    except Exception:
        traceback.print_exc()


def _described(call: str, error: BaseException) -> dict[str, str]:
    """An error for the trainer; ``kind`` is the class of agentrl's that it is, if any."""
    known = [one.__name__ for one in type(error).__mro__ if _KINDS.get(one.__name__) is one]
    expected = isinstance(error, AgentRLError)
    trace = "" if expected else "".join(traceback.format_exception(error))
    return {
        "kind": known[0] if expected else "",
        "name": type(error).__name__,
        "text": _text(error)[:LONGEST_ERROR],
        "trace": trace[-LONGEST_ERROR:],
    }


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as another:  # foreign code as well
        return f"(its text raised {type(another).__name__})"


def _asked(channel: socket.socket) -> Iterator[dict[str, Any]]:
    """What the trainer asks, until it is gone.

    A process that shares the trainer's end of the socket (a fork of it) would hide its death, so
    the parent process is looked at as well.
    """
    parent = os.getppid()
    waiting = select.poll()
    waiting.register(channel, select.POLLIN)

    def received(count: int) -> bytearray:
        data = bytearray()
        while len(data) < count:
            while not waiting.poll(PARENT_CHECK_S * 1000):
                if os.getppid() != parent:
                    raise EOFError
            piece = channel.recv(min(count - len(data), 2**20))
            if not piece:
                raise EOFError
            data += piece
        return data

    while True:
        try:
            yield unpacked(received(frame_length(received(HEADER.size))))
        except (EOFError, OSError):
            return
        except DataError:
            traceback.print_exc()
            return


def _listen(
    worker: _Worker, channel: socket.socket, loop: Any, thread: int, grace_s: float
) -> None:
    """Hand on what the trainer asks; when it is gone, end this process, its environments closed."""
    for asked in _asked(channel):
        if asked["call"] == "running":
            worker.send({"id": asked["id"], "value": worker.running(loop, thread)})
        else:
            loop.call_soon_threadsafe(worker.take, asked)
    worker.orphaned = True
    loop.call_soon_threadsafe(worker.end)
    time.sleep(2 * grace_s)
    _end_group()


def _end_group() -> None:
    """End this process at once, and what its environments have started in its group."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _go_on_when_orphaned() -> None:
    """Have the kernel continue this process when its trainer dies: a stopped one sees nothing."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGCONT)
    except (ImportError, OSError, AttributeError):
        return  # not Linux, or an interpreter without ctypes: only stopped processes are left


async def _serve(channel: socket.socket, grace_s: float) -> None:
    worker = _Worker(channel, grace_s / 2)
    loop, thread = asyncio.get_running_loop(), threading.get_ident()
    worker.send(
        {
            "hello": PROTOCOL,
            "agentrl": agentrl.__version__,
            "python": platform.python_version(),
            "pid": os.getpid(),
        }
    )
    listening = (worker, channel, loop, thread, grace_s)
    threading.Thread(target=_listen, args=listening, name="trainer", daemon=True).start()
    await worker.over.wait()
    if worker.orphaned:
        _end_group()  # nobody else is left to end what environments have started
    if worker.abandoned:
        os._exit(0)  # the end of asyncio.run would wait for what does not end


def main(arguments: Sequence[str]) -> None:
    """Serve the trainer at the other end of a socket.

    Args:
        arguments: The socket's file descriptor, and how long an episode may take to end when it is
            dropped, in seconds.
    """
    descriptor, grace_s = arguments
    channel = socket.socket(fileno=int(descriptor))
    channel.set_inheritable(False)  # not for the processes that environments start
    _go_on_when_orphaned()
    work: Coroutine[Any, Any, None] = _serve(channel, float(grace_s))
    asyncio.run(work)


if __name__ == "__main__":
    main(sys.argv[1:])
