"""``agentrl mcp serve``: tools for any MCP client."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from agentrl.cli.app import app

mcp = typer.Typer(
    name="mcp",
    help="Offer tools to other programs over the Model Context Protocol.",
    no_args_is_help=True,
)
app.add_typer(mcp, rich_help_panel="Make")


@mcp.callback()
def _group() -> None:
    pass


@mcp.command()
def serve(
    tools: Annotated[
        list[str],
        typer.Argument(
            metavar="TOOL...",
            help="Names, module:attr, or '{name: search, options: {corpus: c.jsonl}}'.",
        ),
    ],
    stdio: Annotated[
        bool, typer.Option("--stdio", help="One client, over standard input and output (default).")
    ] = False,
    http: Annotated[
        bool, typer.Option("--http", help="Clients over streamable HTTP; they share all state.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port for --http; 0: any free one.")] = 8000,
    host: Annotated[
        str, typer.Option(help="Address for --http. Others than loopback can be reached by anyone.")
    ] = "127.0.0.1",
) -> None:
    """Serve tools to any MCP client. It sees what a policy sees of them."""
    from agentrl.core.errors import ConfigError
    from agentrl.tools.mcp import serving

    if stdio and http:
        raise ConfigError("choose one of --stdio and --http")
    entries = [_entry(one) for one in tools]
    try:
        if not http:
            asyncio.run(serving.serve_stdio(entries))
            return
        if host not in serving.LOOPBACK:
            typer.echo(f"agentrl: whoever reaches {host} can call these tools", err=True)
        asyncio.run(
            serving.serve_http(
                entries,
                host=host,
                port=port,
                started=lambda url: typer.echo(f"serving at {url}", err=True),
            )
        )
    except KeyboardInterrupt:
        return  # being stopped is how a server ends


def _entry(text: str) -> Any:
    """A name, or a mapping in YAML as in a run file."""
    if not text.lstrip().startswith("{"):
        return text
    import yaml

    from agentrl.core.errors import ConfigError

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"the tool {text!r} is no YAML mapping: {error}") from None
