"""A stand-in for a vLLM server: real HTTP on loopback, answers and faults as a test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

Answer = tuple[int, Any]
Behaviour = Callable[[Any], Awaitable[Answer | None]]


def choice(
    ids: Sequence[int], version: str = "0", reason: str = "length", **more: Any
) -> dict[str, Any]:
    """What the real server answers with."""
    content = [{"logprob": -0.5 - one / 100, "token": str(one)} for one in ids]
    told = {
        "token_ids": list(ids),
        "finish_reason": reason,
        "logprobs": {"content": content},
        "weight_versions": [{"start": 0, "version": version}],
    }
    return {"choices": [told | more]}


class Stand:
    """One server. ``behave`` answers requests for tokens; ``None`` cuts the answer in its middle.

    Attributes:
        asked: Requests for tokens, in the order they came. cut: those whose caller went away.
        routes: How often each route was asked.
        health: What it says of itself; 0: it does not answer.
    """

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.cut = 0
        self.routes: Counter[str] = Counter()
        self.health = 200
        self.version = "default"
        self.vllm: Any = {"version": "0.32.0+cpu"}
        self.most = self._now = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def behave(self, told: Any) -> Answer | None:
        return 200, choice([7, 8], self.version)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """It is gone, with every connection."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for one in list(self._tasks):
            one.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        route = head.split(" ")[1].partition("?")[0]
        sizes = [one for one in head.lower().split("\r\n") if one.startswith("content-length:")]
        size = int(sizes[0].split(":")[1]) if sizes else 0
        told = json.loads(await reader.readexactly(size) or b"null")
        self.routes[route] += 1
        if route == "/inference/v1/generate":
            self.asked.append(told)
            answer = await self._generated(reader, told)
        elif route == "/version":
            answer = 200, self.vllm
        elif route == "/health":
            if not self.health:
                await asyncio.Event().wait()
            answer = self.health, {}
        else:
            answer = self._controlled(route, told)
        if answer is None:
            writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{"choices": [')
            await writer.drain()
            return False
        code, data = answer
        text = data.encode() if isinstance(data, str) else json.dumps(data).encode()
        writer.write(f"HTTP/1.1 {code} _\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
        await writer.drain()
        return True

    async def _generated(self, reader: asyncio.StreamReader, told: Any) -> Answer | None:
        """The behaviour, unless the caller hangs up."""
        self._now += 1
        self.most = max(self.most, self._now)
        work = asyncio.ensure_future(self.behave(told))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self.cut += 1
                raise ConnectionError
            return work.result()
        finally:
            self._now -= 1
            work.cancel()
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await gone

    def _controlled(self, route: str, told: Any) -> Answer:
        if route == "/update_weight_version":
            self.version = told["new_version"]
        elif route == "/weight_info":
            return 200, {"weight_version": self.version}
        return 200, {"success": True}


@asynccontextmanager
async def standing(count: int = 1) -> AsyncIterator[list[Stand]]:
    stands = [Stand() for _ in range(count)]
    for one in stands:
        await one.open()
    try:
        yield stands
    finally:
        for one in stands:
            await one.close()
