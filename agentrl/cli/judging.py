"""Commands that judge runs: ``audit`` and ``compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentrl.cli.app import Json, Overrides, app, console, print_json
from agentrl.core.errors import ConfigError


@app.command(rich_help_panel="Look")
def audit(
    source: Annotated[
        Path | None,
        typer.Argument(help="Directory of a run, which may still be running; or a run file."),
    ] = None,
    overrides: Overrides = [],  # noqa: B006
    lesson: Annotated[
        bool,
        typer.Option("--lesson", help="Instead: how index splits over per-worker shuffles leak."),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail also where something could not be checked.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Prove from its data that a run measured and learnt what it says.

    That no problem is in two splits, every evaluation task was played once per trial, only sampled
    tokens of stored episodes were trained on and none twice, and versions are in order and within
    the staleness bound. Exits with 1 if a check is violated.
    """
    if lesson:
        _lesson(source, as_json)
        return
    if source is None:
        raise ConfigError(
            "name what to audit: the directory of a run, or a run file (or --lesson alone)"
        )
    from agentrl.audit.auditing import audit_config, audit_run

    screen = console(as_json)
    if source.is_dir():
        if overrides:
            raise ConfigError(
                f"overrides ({', '.join(overrides)}) go with a run file: the run in '{source}' "
                "was made as its config.yaml says"
            )
        with screen.status("auditing") as status:
            done = audit_run(source, on_stage=status.update)
    else:
        from agentrl.config import load_config

        with screen.status("listing tasks"):
            done = audit_config(load_config(source, overrides), name=str(source))
    if as_json:
        print_json(done.to_data())
    else:
        from agentrl.audit.shown import show_audit

        show_audit(done, screen)
    if done.violated or (strict and done.unchecked):
        raise typer.Exit(1)


def _lesson(source: Path | None, as_json: bool) -> None:
    from agentrl.audit.lesson import lesson
    from agentrl.audit.shown import show_lesson

    if source is not None:
        raise ConfigError(f"--lesson audits nothing, and got '{source}': give one or the other")
    told = lesson()
    if as_json:
        print_json(told)
    else:
        show_lesson(told, console())


@app.command(rich_help_panel="Look")
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN RUN...", help="Directories of runs, finished or not."),
    ],
    picture: Annotated[
        Path | None, typer.Option(help="Draw the curves into this file (.png, .svg, .pdf).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare runs: success at equal budgets over seeds, final scores paired on one panel.

    Runs that differ only in their seed are one group. The group of the first run is what the
    others are compared with.
    """
    from agentrl.comparing.comparison import compare_runs

    done = compare_runs(runs)
    if picture is not None:
        from agentrl.comparing.picture import write_picture

        write_picture(done, picture)
    if as_json:
        print_json({**done.to_data(), "picture": picture})
        return
    from agentrl.comparing.shown import show_comparison

    show_comparison(done, console())
    if picture is not None:
        typer.echo(f"wrote {picture}")
