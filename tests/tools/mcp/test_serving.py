"""``agentrl mcp serve`` and back: our tools, offered over both transports, as tools of ours."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from typer.testing import CliRunner

from agentrl.cli import app
from agentrl.core.errors import AgentRLError, ConfigError, DeadlineError, EnvError, ToolError
from agentrl.testing import mcp_servers
from agentrl.tools import Toolbox, tool
from agentrl.tools.mcp.serving import mcp_server
from tests.tools.conftest import NEVER, TASK, answers, called, texts

SERVE = (sys.executable, "-m", "agentrl.cli", "mcp", "serve", "calculator", "notes")
CALLS = (
    called(1, "calculator", expression="2+3"),
    called(2, "calculator", expression="2+"),
    called(3, "write_note", title="a", text="b"),
    called(4, "list_notes"),
)
SAID = [
    "5",
    "error: '2+' is no arithmetic expression: invalid syntax",
    "noted 'a'",
    "Notes: a",
]


def server(**options: Any) -> dict[str, Any]:
    return {"name": "mcp", "options": options}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A real server over HTTP on loopback."""
    with subprocess.Popen(
        [*SERVE, "--http", "--port", "0"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("serving at http://127.0.0.1:"), line + process.stderr.read()
        yield line.split()[-1]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_over_standard_input_and_output() -> None:
    said = answers([server(command=list(SERVE))], *CALLS)
    assert texts(said) == SAID
    assert [one.read_only for one in said.records] == [True, True, False, True]


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
def test_over_http(url: str, protocol: str) -> None:
    entry = server(url=url, protocol=protocol)
    assert texts(answers([entry], *CALLS)) == SAID


def test_what_a_client_sees_is_what_a_policy_sees(url: str) -> None:
    async def main() -> None:
        theirs = Toolbox([server(url=url)], watch=NEVER)
        async with theirs.open(TASK, seed=1) as opened:
            plain = [(one.name, one.description, one.read_only) for one in opened.specs]
            schemas = [one.parameters for one in opened.specs]
        ours = Toolbox(["calculator", "notes"]).specs
        assert plain == [(one.name, one.description, one.read_only) for one in ours]
        assert schemas == [{"type": "object", "properties": {}, **one.parameters} for one in ours]

    asyncio.run(main())


def test_a_tool_that_breaks_is_no_result() -> None:
    """In process: what clients get is the protocol's internal error, naming the tool."""
    from mcp import Client, MCPError

    @tool
    async def broken(text: str) -> str:
        """Break.

        Args:
            text: If empty, it is the model's fault.
        """
        if not text:
            raise ToolError("say something")
        raise KeyError(text)

    async def main() -> None:
        async with (
            Toolbox([broken], watch=NEVER).open(TASK, seed=1) as opened,
            Client(mcp_server(opened)) as client,
        ):
            (listed,) = (await client.list_tools()).tools
            assert listed.name == "broken"
            said = await client.call_tool("broken", {"text": ""})
            assert said.is_error
            assert [getattr(one, "text", "") for one in said.content] == ["say something"]
            with pytest.raises(MCPError, match="the tool 'broken' raised KeyError: 'x'"):
                await client.call_tool("broken", {"text": "x"})
            unknown = await client.call_tool("borken", {})
            assert unknown.is_error

    asyncio.run(main())


@contextlib.contextmanager
def web(status: int, kind: str, body: bytes) -> Iterator[str]:
    """A web server that knows nothing of the protocol."""

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_DELETE = do_POST  # noqa: N815 - the names that http.server calls

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}/mcp?key=hidden"
        finally:
            http.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "kind", "body", "said"),
    [
        (200, "text/html", b"<html>Welcome</html>", "Unexpected content type: text/html"),
        (404, "text/html", b"<html>No</html>", "Not Found"),
        (500, "text/plain", b"oops", "error response"),
        (200, "application/json", b"{]", "Failed to parse JSON"),
        (200, "application/json", b'{"ok": true}', "Failed to parse JSON"),
    ],
)
def test_what_is_no_mcp_server_is_named(status: int, kind: str, body: bytes, said: str) -> None:
    with web(status, kind, body) as url, pytest.raises(EnvError, match="(?s)" + said) as raised:
        answers([server(url=url)])
    assert "did not begin a session" in str(raised.value)
    assert "/mcp'" in str(raised.value)
    assert "hidden" not in str(raised.value)


@contextlib.contextmanager
def spoken_over_http(fault: str) -> Iterator[str]:
    """The stand-in behind HTTP, which breaks in a call."""
    calls, over = mcp_servers.Calls(), threading.Event()

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if request["method"] == "tools/call" and fault == "mute_calls":
                over.wait(60)
            if request["method"] == "tools/call" and fault in ("dies", "mute_calls"):
                self.close_connection = True
                return
            reply = None if "id" not in request else mcp_servers.answer(request, fault, calls)
            body = b"" if reply is None else json.dumps(reply).encode()
            self.send_response(202 if reply is None else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}/mcp"
        finally:
            over.set()
            http.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        ("dies", EnvError, r"the tool 'echo': the MCP server 'http.*'echo'"),
        ("mute_calls", DeadlineError, r"'echo' gave no answer within 0\.5 s"),
        ("wrong_answer", EnvError, r"wrong answer for its tool 'echo'"),
        ("error_answer", EnvError, r"answered with error -32603: KeyError"),
        ("lies_type", ConfigError, r"the tool 'second', inputSchema\.type"),
    ],
)
def test_a_server_that_breaks_over_http(fault: str, kind: type[AgentRLError], said: str) -> None:
    deadline_s = 0.5 if fault == "mute_calls" else 30.0
    with spoken_over_http(fault) as url, pytest.raises(kind, match=f"(?s){said}"):
        answers([server(url=url, deadline_s=deadline_s)], called(1, "echo", text="a"))


def test_a_long_text_comes_whole_over_http() -> None:
    with spoken_over_http("") as url:
        said = answers([server(url=url)], called(1, "echo", text="é" * 70_000))
    assert said.records[0].result.content == "é" * 70_000


def test_a_wrong_url_is_named() -> None:
    with web(200, "text/html", b"") as url:
        pass  # nobody listens there any more
    with pytest.raises(EnvError, match=r"did not begin a session: ConnectError"):
        answers([server(url=url)])


def test_secrets_go_into_headers_by_name(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("MY_HEADER", "Bearer hunter2-hunter2")
    entry = server(url=url, headers_from={"Authorization": "MY_HEADER"})
    assert texts(answers([entry], CALLS[0])) == ["5"]
    monkeypatch.delenv("MY_HEADER")
    with pytest.raises(ConfigError, match="needs the environment variable 'MY_HEADER'"):
        Toolbox([entry])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["calculator", "--http", "--stdio"], "choose one of --stdio and --http"),
        (["calculater"], "did you mean 'calculator'?"),
        (["calculator", "calculator"], "two tools are called 'calculator'"),
        (["{name: search"], "is no YAML mapping"),
        (["{nam: search}"], "a mapping of 'name' and 'options'"),
        (["calculator", "--http", "--port", "99999"], "cannot listen at 127.0.0.1, port 99999"),
    ],
)
def test_what_cannot_be_served_is_misuse(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["mcp", "serve", *arguments])
    assert result.exit_code == 2, result.output
    assert said in result.output
