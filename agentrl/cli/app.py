"""The typer application and what its commands share: options, JSON on stdout, exit codes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from agentrl.cli.stopping import INTERRUPTED, TERMINATED, Terminated, terminable
from agentrl.core.errors import AgentRLError, ConfigError

__all__ = ["Json", "Overrides", "RunDirectory", "app", "console", "plain_json", "print_json"]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for machines.")]
Overrides = Annotated[
    list[str], typer.Argument(metavar="[KEY=VALUE]...", help="Overrides: sampling.temperature=0.7")
]
RunDirectory = Annotated[Path, typer.Argument(help="Run directory; it may still be running.")]


ORDER = [
    *("train", "evaluate", "rollout", "serve", "view", "credit", "compare", "audit", "export"),
    *("init", "new", "check", "list", "models", "engines", "mcp", "doctor"),
]


def _without_types(params: Any) -> Any:
    """``params``; the help shows no ``<bool>`` after an option that takes no value."""
    for one in params:
        if getattr(one, "is_flag", False) and one.metavar is None:
            one.metavar = ""
    return params


class _Commands(TyperGroup):
    """Every expected error becomes a message and an exit code; a bug keeps its traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        for one in (command, *getattr(command, "commands", {}).values()):
            _without_types(one.get_params(ctx) if one is not None else ())
        return command

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        try:
            with terminable():
                return super().invoke(ctx)
        except AgentRLError as error:
            _fail(f"agentrl: {error}", 2 if isinstance(error, ConfigError) else 1)
        except Terminated:
            _fail("agentrl: stopped by SIGTERM; what was finished is kept", TERMINATED)
        except KeyboardInterrupt:
            _fail("agentrl: stopped; what was finished is kept", INTERRUPTED)


app = typer.Typer(
    name="agentrl",
    cls=_Commands,
    help="Train tool-using LLM agents with multi-turn reinforcement learning.\n\n"
    "Exit codes: 0 done, 1 failed, 2 misuse, 130 stopped by Ctrl-C, 143 by SIGTERM.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        from agentrl import __version__

        typer.echo(f"agentrl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    pass


def _fail(text: str, code: int) -> None:
    typer.echo(text, err=True)
    raise typer.Exit(code)


def console(as_json: bool = False) -> Any:
    """Where people read: standard output, or standard error if that is for a JSON document."""
    from rich.console import Console

    return Console(stderr=as_json)


def print_json(data: Any) -> None:
    """Print one JSON document. NaN and infinity, which JSON does not have, become ``null``."""
    text = json.dumps(plain_json(data), indent=2, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates of a damaged text: escapes can hold them
        text = json.dumps(plain_json(data), indent=2)
    typer.echo(text)


def plain_json(value: Any) -> Any:
    """Records as mappings and lists that JSON can hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain_json(one) for key, one in value.items()}
    if isinstance(value, Sequence):
        return [plain_json(one) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain_json(getattr(value, name)) for name in value.__dataclass_fields__}
    return str(value)
