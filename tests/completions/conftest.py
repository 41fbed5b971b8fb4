"""An endpoint on loopback that answers, or misbehaves, as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

KEY = "sk-canary-0123456789abcdef"


def answer(content: str | None, **more: Any) -> dict[str, Any]:
    """The body of an answer."""
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    finish = more.pop("finish_reason", "stop")
    message = {"role": "assistant", "content": content, **more}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage}


class Reply:
    """What the endpoint sends: a status, a body, headers; ``cut`` ends it in the middle."""

    def __init__(
        self,
        body: Any,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        *,
        cut: bool = False,
    ) -> None:
        self.status, self.cut = status, cut
        html = isinstance(body, str)
        self.body = body.encode() if html else json.dumps(body).encode()
        kind = "text/html" if html else "application/json"
        self.headers = {"Content-Type": kind, **(headers or {})}


class Service(ThreadingHTTPServer):
    """Answers the n-th request with ``replies[n]``, the last for all further ones."""

    daemon_threads = True

    def __init__(self, *replies: Reply | Callable[[dict[str, Any]], Reply]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies = replies
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        service = self.server
        assert isinstance(service, Service)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with service.lock:
            number = len(service.asked)
            service.asked.append(body)
            service.keys.append(self.headers.get("Authorization", ""))
        reply = service.replies[min(number, len(service.replies) - 1)]
        reply = reply(body) if callable(reply) else reply
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body[: len(reply.body) // 2] if reply.cut else reply.body)
        self.close_connection = self.close_connection or reply.cut

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


Serve = Callable[..., Service]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts services, and ends them."""
    running: list[Service] = []

    def start(*replies: Any) -> Service:
        service = Service(*replies)
        threading.Thread(target=service.serve_forever, args=(0.01,), daemon=True).start()
        running.append(service)
        return service

    yield start
    for one in running:
        one.shutdown()
        one.server_close()


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
