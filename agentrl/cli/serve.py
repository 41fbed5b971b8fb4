"""``agentrl serve``: an endpoint for agents that are started elsewhere, which a run learns from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentrl.cli.app import Json, Overrides, app, console, print_json
from agentrl.core.errors import ConfigError

WAIT_S = 86_400  # somebody has to come and play; that may take until tomorrow


@app.command(rich_help_panel="Run")
def serve(
    config: Annotated[Path, typer.Argument(help="Run file (YAML) of an agent's environment.")],
    overrides: Overrides = [],  # noqa: B006
    port: Annotated[int, typer.Option(help="Port of the endpoint; 0: any free one.")] = 8750,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the stopped or killed run in a directory.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train from episodes that agents elsewhere claim, play and score over HTTP.

    The environment is one of agentrl.envs.blackbox without an agent or a command of its own. Ends
    when the run does; docs/how-to/train-an-agent-you-did-not-write.md shows a player.
    """
    from agentrl.assembly import close_factory, make_factory
    from agentrl.config import load_config
    from agentrl.envs.blackbox.endpoint import LOOPBACK, free_port
    from agentrl.run_directory import CONFIG_FILE
    from agentrl.train import resume as go_on
    from agentrl.train import train

    given = load_config(config / CONFIG_FILE if resume else config, overrides)
    factory = make_factory(given)
    try:
        if not getattr(factory, "offers", False):
            raise ConfigError(
                f"the environment '{given.env.name}' plays its episodes itself, so there is "
                f"nothing to serve: use agentrl train {config}. To serve, leave agent and command "
                "out of the options of the environment 'blackbox'"
            )
    finally:
        close_factory(factory)
    host = str(given.env.options.get("host", LOOPBACK[0]))
    if host not in LOOPBACK:
        typer.echo(f"agentrl: whoever reaches {host} can play these episodes", err=True)
    port = int(given.env.options.get("port", 0)) or port or free_port(host)
    typer.echo(f"serving episodes at http://{host}:{port}/episodes", err=True)
    if resume:  # at the address that the run has always had
        report = go_on(config, overrides, console=console(as_json))
    else:
        serving = [f"env.options.port={port}"]
        if "reset_timeout_s" not in given.rollout.model_fields_set:
            serving.append(f"rollout.reset_timeout_s={WAIT_S}")
        report = train(load_config(config, [*overrides, *serving]), console=console(as_json))
    if as_json:
        print_json(report.to_data())
