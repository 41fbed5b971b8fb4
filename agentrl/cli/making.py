"""Commands around parts of one's own: ``init``, ``new``, ``check``, ``list``, ``doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentrl.cli.app import Json, app, console, print_json


def _kinds() -> list[str]:
    from agentrl.registry import KINDS

    return list(KINDS)


def _names(ctx: typer.Context) -> list[str]:
    """Plug-in names of the kind that was typed before, for the shell's completion."""
    from agentrl.registry import KINDS, names

    kind = str(ctx.params.get("kind", ""))
    return list(names(kind)) if kind in KINDS else []


@app.command(rich_help_panel="Make")
def init(
    file: Annotated[Path, typer.Argument(help="Run file to write.")] = Path("run.yaml"),
    env: Annotated[str, typer.Option(help="Environment to name in it.")] = "toy",
    as_json: Json = False,
) -> None:
    """Write a commented run file that works as it is. Nothing is overwritten."""
    from agentrl.scaffold.writing import write_run_file

    path = write_run_file(file, env)
    if as_json:
        print_json({"files": [path]})
    else:
        typer.echo(f"wrote {path}. Look at it, then:\n  agentrl train {path} --dry-run")
        typer.echo(f"  agentrl train {path}")


@app.command(rich_help_panel="Make")
def new(
    kind: Annotated[
        str, typer.Argument(help="env or tool", autocompletion=lambda: ["env", "tool"])
    ],
    name: Annotated[str, typer.Argument(help="Name of the module, such as coin_game.")],
    folder: Annotated[Path, typer.Option("--in", help="Folder to write into.")] = Path("."),
    as_json: Json = False,
) -> None:
    """Write a working skeleton of a part of your own, with its test."""
    from agentrl.scaffold.writing import write_skeleton

    made = write_skeleton(kind, name, folder)
    if as_json:
        print_json(made)
        return
    typer.echo("\n".join(f"wrote {path}" for path in made.files))
    there = "" if folder == Path(".") else f"cd {folder}; "
    typer.echo(f"It works as it is. Next:\n  {there}agentrl check {kind} {made.spec}")
    typer.echo(f"  {there}python -m pytest {made.files[1].name}    (pip install pytest)")
    if kind == "env":
        typer.echo(f"  {there}agentrl init {name}.yaml --env {made.spec}")


@app.command(rich_help_panel="Make")
def check(
    kind: Annotated[
        str, typer.Argument(help="env, engine, credit, ..., or run.", autocompletion=_kinds)
    ],
    name: Annotated[
        str,
        typer.Argument(help="Plug-in name or module:attr; a run file.", autocompletion=_names),
    ],
    options: Annotated[
        list[str],
        typer.Argument(metavar="[KEY=VALUE]...", help="The part's own options; overrides."),
    ] = [],  # noqa: B006
    model: Annotated[
        str, typer.Option(help="Of an engine: compare it with the learner on this model instead.")
    ] = "",
    limit: Annotated[
        float, typer.Option(min=0, max=1, help="With --model: share of tokens that may differ.")
    ] = 0.02,
    as_json: Json = False,
) -> None:
    """Run the contract suite of its kind on a plug-in and say in words what is wrong.

    The kind run checks a run file, as train --dry-run does. With --model an engine's
    log-probabilities are compared with the learner's; sampling.temperature=0.7 among the options
    says how it samples then.
    """
    if model:
        _agreement(kind, name, options, model, limit, as_json)
        return
    if kind == "run":
        from agentrl.cli.running import show_plan

        show_plan(Path(name), options, as_json)
        return
    from agentrl.testing.checking import check_plugin

    findings = check_plugin(kind, name, options)
    broken = sum(not one.ok for one in findings)
    if as_json:
        print_json(findings)
    else:
        for one in findings:
            typer.echo(f"{'note' if one.note else 'ok  ' if one.ok else 'FAIL'} {one.rule}")
            if not one.ok:
                typer.echo(f"     {one.detail}")
        passed = sum(one.ok and not one.note for one in findings)
        typer.echo(f"{passed} passed, {broken} failed")
    if broken:
        raise typer.Exit(1)


def _agreement(
    kind: str, name: str, options: list[str], model: str, limit: float, as_json: bool
) -> None:
    from agentrl.core.errors import ConfigError
    from agentrl.testing.agreement import check_agreement, split_options

    if kind != "engine":
        raise ConfigError(f"--model compares an engine with the learner, and '{kind}' is none")
    own, sampling = split_options(options)
    found = check_agreement(name, model, own, sampling=sampling, limit=limit)
    if as_json:
        print_json(found.to_data())
    else:
        typer.echo("\n".join(found.lines()))
    if not found.ok:
        raise typer.Exit(1)


@app.command(name="list", rich_help_panel="Make")
def list_plugins(
    kind: Annotated[
        str, typer.Argument(help="env, engine, credit, ...; default: all.", autocompletion=_kinds)
    ] = "",
    as_json: Json = False,
) -> None:
    """List installed plug-ins by kind."""
    from agentrl.registry import KINDS, names

    found = {one: names(one) for one in ([kind] if kind else KINDS)}
    if as_json:
        print_json(found)
        return
    for one, installed in found.items():
        typer.echo(f"{one:10} {', '.join(installed) or '-'}")


@app.command(rich_help_panel="Make")
def doctor(as_json: Json = False) -> None:
    """Say what is installed, what is missing and how to get it, and what this machine can do."""
    from agentrl.doctor import examine

    diagnosis = examine()
    if as_json:
        print_json(diagnosis.to_data())
    else:
        diagnosis.show(console())
    if not diagnosis.healthy:
        raise typer.Exit(1)
