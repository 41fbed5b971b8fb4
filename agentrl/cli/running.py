"""Commands that play and learn: ``train``, ``evaluate``, ``rollout``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agentrl.cli.app import Json, Overrides, app, console, print_json
from agentrl.core.errors import ConfigError

RunFile = Annotated[Path, typer.Argument(help="Run file (YAML).")]


@app.command(rich_help_panel="Run")
def train(
    config: Annotated[
        Path, typer.Argument(help="Run file (YAML); with --resume, a run's directory.")
    ],
    overrides: Overrides = [],  # noqa: B006
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the stopped or killed run in a directory.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check all that needs no weights, say what would happen."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Train as the run file says. Ends with report.json, curve.png and report.html."""
    from agentrl.config import load_config

    if resume:
        _resume(config, overrides, dry_run, as_json)
        return
    if config.is_dir():
        raise ConfigError(
            f"'{config}' is a directory, and a run file is expected. To go on with a run: "
            f"agentrl train --resume {config}"
        )
    if dry_run:
        show_plan(config, overrides, as_json)
        return
    from agentrl.train import train as start

    report = start(load_config(config, overrides), console=console(as_json))
    if as_json:
        print_json(report.to_data())


def show_plan(file: Path, overrides: list[str], as_json: bool) -> None:
    """Check a run file, and print what the run would do."""
    from agentrl.cli.dry_run import plan
    from agentrl.config import load_config

    planned = plan(load_config(file, overrides))
    if as_json:
        print_json(planned)
    else:
        planned.show(console())


def _resume(run_dir: Path, overrides: list[str], dry_run: bool, as_json: bool) -> None:
    if dry_run:
        raise ConfigError("--dry-run is for a run that begins; give it without --resume")
    from agentrl.train import resume

    report = resume(run_dir, overrides, console=console(as_json))
    if as_json:
        print_json(report.to_data())


@app.command(rich_help_panel="Run")
def evaluate(
    source: Annotated[Path, typer.Argument(help="Run file, or the directory of a finished run.")],
    overrides: Overrides = [],  # noqa: B006
    split: Annotated[str, typer.Option(help="Split to play; default: the test split.")] = "",
    tasks: Annotated[int, typer.Option(min=0, help="Tasks to play; 0: as the run says.")] = 0,
    trials: Annotated[int, typer.Option(min=1, help="Episodes per task.")] = 1,
    greedy: Annotated[bool, typer.Option(help="Temperature 0 instead of sampling.")] = False,
    as_json: Json = False,
) -> None:
    """Measure success on a panel of tasks, every task once per trial."""
    from agentrl.play import evaluate as run

    report = run(
        _source(source, overrides),
        split=split,
        tasks=tasks,
        trials=trials,
        greedy=greedy,
        console=console(as_json),
    )
    if as_json:
        print_json(report.to_data())


@app.command(rich_help_panel="Run")
def rollout(
    source: Annotated[Path, typer.Argument(help="Run file, or the directory of a finished run.")],
    overrides: Overrides = [],  # noqa: B006
    split: Annotated[str, typer.Option(help="Split to play; default: the train split.")] = "",
    tasks: Annotated[int, typer.Option(min=1, help="Tasks to play.")] = 16,
    group_size: Annotated[int, typer.Option(min=1, help="Episodes per task.")] = 1,
    as_json: Json = False,
) -> None:
    """Play episodes into the store of a new run directory, without training."""
    from agentrl.play import rollout as run

    # A run's own directory holds the run: its model plays into a new one beside it.
    if source.is_dir() and not any(one.startswith("run_dir=") for one in overrides):
        overrides = [*overrides, f"run_dir={_beside(source, 'rollout')}"]
    summary = run(
        _source(source, overrides),
        split=split,
        tasks=tasks,
        group_size=group_size,
        console=console(as_json),
    )
    if as_json:
        print_json(summary)


def _beside(run_dir: Path, ending: str) -> Path:
    """The first free of ``RUN-rollout``, ``RUN-rollout-2``, ..."""
    path, number = run_dir.with_name(f"{run_dir.resolve().name}-{ending}"), 2
    while path.exists():
        path, number = path.with_name(f"{run_dir.resolve().name}-{ending}-{number}"), number + 1
    return path


def _source(path: Path, overrides: list[str]) -> Any:
    """The configuration of a run file, or of a finished run with its trained model."""
    from agentrl.config import load_config
    from agentrl.run_directory import CONFIG_FILE, read_manifest
    from agentrl.train import MODEL_DIRECTORY

    if not path.is_dir():
        return load_config(path, overrides)
    model = path / MODEL_DIRECTORY
    if not (path / CONFIG_FILE).is_file() or not model.is_dir():
        raise ConfigError(
            f"'{path}' is not the directory of a finished run: it needs {CONFIG_FILE} and "
            f"{MODEL_DIRECTORY}/; give a run file or a run directory"
        )
    read_manifest(path)
    merged = ["model.lora=null", "model.adapter=null"]
    trained = [f"model.path={model}", "model.create=null", *merged]
    return load_config(path / CONFIG_FILE, [*trained, *overrides])
