"""Our tools for any MCP client: ``agentrl mcp serve``.

A client sees the names, docstrings and schemas that a policy would see. What a policy would read as
an error (a ``ToolError``, arguments that do not fit) is an error result; a tool that breaks is the
protocol's internal error. Over standard input and output there is one client, and the tools' state
is its own; over HTTP all clients share it, for the protocol has no sessions there any more.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

from agentrl.core.errors import AgentRLError, ConfigError, MissingDependencyError
from agentrl.core.message import ToolCall
from agentrl.core.task import Task
from agentrl.tools.toolbox import OpenTools, Toolbox

__all__ = ["LOOPBACK", "mcp_server", "serve_http", "serve_stdio"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PATH = "/mcp"
GRACE_S = 2
_TASK = Task("mcp", "mcp", "serve")


def mcp_server(tools: OpenTools) -> Any:
    """The library's ``Server`` that offers ``tools``.

    Raises:
        MissingDependencyError: the library is not installed.
    """
    try:
        import mcp_types as types
        from mcp import MCPError
        from mcp.server import Server
    except ImportError:
        raise MissingDependencyError.for_extra("mcp", "mcp", "serving tools (MCP)") from None
    from agentrl import __version__

    listed = types.ListToolsResult(
        tools=[
            types.Tool(
                name=one.name,
                description=one.description,
                input_schema={"type": "object", **one.parameters},
                annotations=types.ToolAnnotations(read_only_hint=one.read_only),
            )
            for one in tools.specs
        ]
    )
    read_only = {one.name for one in tools.specs if one.read_only}
    alone = asyncio.Lock()  # what changes something runs alone, as in an episode

    async def on_list_tools(context: Any, params: Any) -> Any:
        return listed

    async def on_call_tool(context: Any, params: Any) -> Any:
        call = ToolCall("1", params.name, params.arguments or {})
        try:
            if params.name in read_only:
                answered = await tools.answer([call])
            else:
                async with alone:
                    answered = await tools.answer([call])
        except AgentRLError as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from error
        failed = bool(answered.records[0].problem)
        text = answered.messages[0].content
        content = [types.TextContent(text=text.removeprefix("error: ") if failed else text)]
        return types.CallToolResult(content=list(content), is_error=failed)

    return Server(
        "agentrl", version=__version__, on_list_tools=on_list_tools, on_call_tool=on_call_tool
    )


async def serve_stdio(entries: Sequence[Any]) -> None:
    """Serve one client over standard input and output, until it closes them."""
    toolbox = Toolbox(entries)
    async with toolbox.open(_TASK, seed=0) as tools:
        server = mcp_server(tools)
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())


async def serve_http(
    entries: Sequence[Any], *, host: str, port: int, started: Callable[[str], None]
) -> None:
    """Serve clients over streamable HTTP until the process is told to end.

    Args:
        entries: A tool list, as of an environment.
        host: Address to listen at; beyond ``LOOPBACK`` whoever reaches it may call the tools.
        port: 0 for a free one.
        started: Called with the URL once it listens.

    Raises:
        ConfigError: the address cannot be had.
    """
    toolbox = Toolbox(entries)
    async with toolbox.open(_TASK, seed=0) as tools:
        server = mcp_server(tools)
        import uvicorn

        application = server.streamable_http_app(streamable_http_path=PATH, host=host)
        config = uvicorn.Config(
            application, log_level="warning", timeout_graceful_shutdown=GRACE_S, lifespan="on"
        )
        with _listening(host, port) as listener:
            place = f"[{host}]" if ":" in host else host
            started(f"http://{place}:{listener.getsockname()[1]}{PATH}")
            await uvicorn.Server(config).serve(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio sends small answers at once instead of waiting 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigError(f"cannot listen at {host}, port {port}: {error}") from None
    return listener
