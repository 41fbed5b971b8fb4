"""``agentrl engines``: what an engine needs beside agentrl itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentrl.cli.app import Json, app, console, print_json
from agentrl.core.errors import ConfigError, nearest

SERVERS = ("vllm",)

engines = typer.Typer(
    name="engines",
    help="What an engine needs beside agentrl itself.",
    no_args_is_help=True,
)
app.add_typer(engines, rich_help_panel="Make")


@engines.callback()
def _group() -> None:
    pass


@engines.command()
def install(
    name: Annotated[str, typer.Argument(help="vllm: the server that the vllm engine talks to.")],
    cpu: Annotated[bool, typer.Option("--cpu", help="The build for CPUs.")] = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="The build for NVIDIA GPUs.")] = False,
    into: Annotated[
        Path | None,
        typer.Option(help="Folder; default: AGENTRL_VLLM, or the user's data folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Install a server into an environment of its own, where it is found from then on.

    Without --cpu and --gpu: for the GPU if there is one. It takes minutes and several gigabytes;
    run again, it goes on where it was stopped, and does nothing once it is complete.
    """
    from agentrl.engines.vllm import environment

    if name not in SERVERS:
        raise ConfigError(
            f"unknown server '{name}'{nearest(name, SERVERS) or '.'} There is: {SERVERS[0]}. The "
            "other engines need nothing but agentrl and its extras"
        )
    if cpu and gpu:
        raise ConfigError("give one of --cpu and --gpu, not both")
    kind: environment.Kind = "cpu" if cpu else "gpu" if gpu else environment.kind_here()
    screen = console(as_json)
    folder = environment.target(into)
    found = environment.install(
        kind, folder, say=lambda line: screen.print(line, markup=False, highlight=False)
    )
    environment.record(folder)
    if as_json:
        print_json(found)
    else:
        typer.echo(f"vLLM {found.version} for the {kind.upper()} is in {found.folder}")
