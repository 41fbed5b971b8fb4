"""The server that agents of somebody else's speak to: chat completions, on loopback.

It lives in a thread with an event loop of its own, so that neither it nor the episodes can hold up
each other. Which episode a call belongs to is said by its API key.

    POST /v1/chat/completions     GET /v1/models
    POST /episodes                an episode that waits for somebody to play it: key, problem, seed
    POST /episodes/KEY/result     {"reward": 1.0, "success": true}, or {"error": "..."}
"""

from __future__ import annotations

import asyncio
import json
import queue
import secrets
import socket
import threading
from collections import OrderedDict
from typing import Any

from agentrl.core.errors import ConfigError, DataError, MissingDependencyError
from agentrl.core.task import Task
from agentrl.envs.blackbox.chat import completion, completion_chunks, question
from agentrl.envs.blackbox.exchange import Exchange, Over

__all__ = ["LOOPBACK", "Endpoint", "free_port"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MODEL = "policy"
MOST_BYTES = 32 * 2**20
CLAIM_S = 20.0  # how long a claim waits for an episode before it is told to come again
_REMEMBERED = 10_000


class Endpoint:
    """Listens from the moment it is made; ``close`` ends it.

    Args:
        host: Address to listen at; beyond ``LOOPBACK`` whoever reaches it may play episodes.
        port: 0 for a free one.

    Attributes:
        url: Base of the chat completions, as clients want it.
        calls: How many completions were given.

    Raises:
        ConfigError: the address cannot be had.
        MissingDependencyError: uvicorn or starlette is not installed.
    """

    def __init__(self, host: str = LOOPBACK[0], port: int = 0) -> None:
        try:
            import uvicorn
        except ImportError:
            raise MissingDependencyError.for_extra("uvicorn", "serve", "serving agents") from None
        self._lock = threading.Lock()
        self._episodes: dict[str, Exchange] = {}
        self._over: OrderedDict[str, str] = OrderedDict()
        self._waiting: queue.SimpleQueue[Exchange] = queue.SimpleQueue()
        self.calls = 0
        listener = _listening(host, port)
        place = f"[{host}]" if ":" in host else host
        self.address = f"http://{place}:{listener.getsockname()[1]}"
        self.url = f"{self.address}/v1"
        config = uvicorn.Config(
            self._application(),
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=1,
            log_config=None,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([listener],), name="endpoint", daemon=True
        )
        self._thread.start()

    def open(self, task: Task, seed: int, *, offered: bool = False) -> Exchange:
        """A new episode; ``offered``: whoever claims it plays it."""
        exchange = Exchange(f"ep-{secrets.token_urlsafe(18)}", task, seed)
        with self._lock:
            self._episodes[exchange.key] = exchange
        if offered:
            self._waiting.put(exchange)
        return exchange

    def forget(self, exchange: Exchange, why: str) -> None:
        """The episode is over: its key is refused from now on."""
        with self._lock:
            self._episodes.pop(exchange.key, None)
            self._over[exchange.key] = why
            while len(self._over) > _REMEMBERED:
                self._over.popitem(last=False)
        exchange.close(why)

    def close(self) -> None:
        """Stop listening; every episode is over."""
        with self._lock:
            open_now = list(self._episodes.values())
        for exchange in open_now:
            self.forget(exchange, "the endpoint was closed")
        self.leave()
        self._thread.join(10.0)

    def leave(self) -> None:
        """Stop listening soon, without waiting for it."""
        self._server.should_exit = True

    # What is asked of it

    def _application(self) -> Any:
        from starlette.applications import Starlette
        from starlette.routing import Route

        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/episodes", self._claim, methods=["POST"]),
                Route("/episodes/{key}/result", self._result, methods=["POST"]),
            ]
        )

    async def _complete(self, request: Any) -> Any:
        from starlette.responses import JSONResponse, StreamingResponse

        try:
            exchange = self._find(_key(request))
            asked = question(await _json(request))
        except _Refused as refused:
            return refused.response
        except DataError as error:
            return _refusal(400, "invalid_request_error", str(error))
        again = request.headers.get("x-stainless-retry-count", "0") != "0"
        try:
            # Shielded: a client that goes away takes nothing from the episode.
            answer = await asyncio.shield(asyncio.wrap_future(exchange.ask(asked, again=again)))
        except Over as over:
            return _refusal(410, "episode_over", f"this episode is over: {over}")
        self.calls += 1
        told: dict[str, Any] = {
            "id": f"chatcmpl-{self.calls}",
            "model": asked.model or MODEL,
        }
        if not asked.stream:
            return JSONResponse(completion(answer, **told))
        events = [*map(json.dumps, completion_chunks(answer, **told)), "[DONE]"]
        lines = [f"data: {one}\n\n" for one in events]
        return StreamingResponse(iter(lines), media_type="text/event-stream")

    async def _models(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "agentrl"}
        return JSONResponse({"object": "list", "data": [model]})

    async def _claim(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        loop = asyncio.get_running_loop()
        give_up = loop.time() + CLAIM_S
        while not (self._server.should_exit or loop.time() > give_up):
            if await request.is_disconnected():
                break  # nobody would play what is handed out now
            try:
                exchange = self._waiting.get_nowait()
            except queue.Empty:
                await asyncio.sleep(0.01)  # it is filled from another thread
                continue
            with self._lock:
                alive = exchange.key in self._episodes
            if alive:
                return JSONResponse(
                    {
                        "key": exchange.key,
                        "base_url": self.url,
                        "problem": dict(exchange.task.payload),
                        "seed": exchange.seed,
                    }
                )
        return _refusal(503, "no_episode", "no episode waits to be played; ask again", retry_s=1)

    async def _result(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        try:
            exchange = self._find(request.path_params["key"])
            body = await _json(request)
        except _Refused as refused:
            return refused.response
        if isinstance(body, dict) and "error" in body:
            exchange.fail(f"its player said: {body['error']}")
        else:
            exchange.end(body)
        return JSONResponse({})

    def _find(self, key: str) -> Exchange:
        with self._lock:
            exchange, over = self._episodes.get(key), self._over.get(key)
        if exchange is not None:
            return exchange
        if over is not None:
            raise _Refused(410, "episode_over", f"this episode is over: {over}")
        raise _Refused(
            401,
            "unknown_key",
            "no episode has this API key. Each has one of its own: use the one that the agent was "
            "given, and no other episode's",
        )


class _Refused(Exception):
    def __init__(self, status: int, kind: str, text: str) -> None:
        super().__init__(text)
        self.response = _refusal(status, kind, text)


def _refusal(status: int, kind: str, text: str, *, retry_s: int | None = None) -> Any:
    """An error as clients of such servers read it."""
    from starlette.responses import JSONResponse

    headers = {} if retry_s is None else {"retry-after": str(retry_s)}
    body = {"error": {"message": text, "type": kind, "code": kind, "param": None}}
    return JSONResponse(body, status_code=status, headers=headers)


def _key(request: Any) -> str:
    """The key of a call: of its header x-agentrl-episode, or its API key."""
    named = request.headers.get("x-agentrl-episode", "")
    key: str = named or request.headers.get("authorization", "").removeprefix("Bearer ").strip()
    return key


async def _json(request: Any) -> Any:
    size, parts = 0, []
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise _Refused(413, "too_large", f"a request may have {MOST_BYTES} bytes")
        parts.append(part)
    try:
        return json.loads(b"".join(parts))
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or nested without end
        raise _Refused(400, "invalid_request_error", f"the body is no JSON: {error}") from None


def free_port(host: str) -> int:
    """A port that nobody listens at now."""
    with _listening(host, 0) as listener:
        port: int = listener.getsockname()[1]
    return port


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio sends small answers at once instead of waiting 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigError(f"cannot listen at {host}, port {port}: {error}") from None
    return listener
