"""The command line: ``agentrl train | rollout | evaluate | view | list | check``.

Exit codes: 0 done, 1 failed, 2 misuse. With ``--json`` standard output holds one JSON document and
nothing else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from agentrl.core.errors import AgentRLError, ConfigError

app = typer.Typer(
    name="agentrl",
    help="Train tool-using LLM agents with multi-turn reinforcement learning.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for machines.")]
RunFile = Annotated[Path, typer.Argument(help="Run file (YAML).")]
Overrides = Annotated[
    list[str], typer.Argument(metavar="[KEY=VALUE]...", help="Overrides: sampling.temperature=0.7")
]


@app.command()
def train(config: RunFile, overrides: Overrides = [], as_json: Json = False) -> None:  # noqa: B006
    """Train as the run file says. Ends with report.json, curve.png and report.html."""
    from agentrl.config import load_config
    from agentrl.train import train as run

    report = run(load_config(config, overrides), console=_console(as_json))
    if as_json:
        _print_json(report.to_data())


@app.command()
def evaluate(
    source: Annotated[Path, typer.Argument(help="Run file, or the directory of a finished run.")],
    overrides: Overrides = [],  # noqa: B006
    split: Annotated[str, typer.Option(help="Split to play; default: the test split.")] = "",
    tasks: Annotated[int, typer.Option(help="Tasks to play; 0: as the run file says.")] = 0,
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
        console=_console(as_json),
    )
    if as_json:
        _print_json(report.to_data())


@app.command()
def rollout(
    config: RunFile,
    overrides: Overrides = [],  # noqa: B006
    split: Annotated[str, typer.Option(help="Split to play; default: the train split.")] = "",
    tasks: Annotated[int, typer.Option(min=1, help="Tasks to play.")] = 16,
    group_size: Annotated[int, typer.Option(min=1, help="Episodes per task.")] = 1,
    as_json: Json = False,
) -> None:
    """Play episodes into the store of a new run directory, without training."""
    from agentrl.play import rollout as run

    summary = run(
        _source(config, overrides),
        split=split,
        tasks=tasks,
        group_size=group_size,
        console=_console(as_json),
    )
    if as_json:
        _print_json(summary)


@app.command()
def view(
    run: Annotated[Path, typer.Argument(help="Run directory; it may still be running.")],
    episode: Annotated[str, typer.Argument(help="Id of one episode, to see it step by step.")] = "",
    kind: Annotated[str, typer.Option(help="Only tasks of this kind.")] = "",
    task: Annotated[str, typer.Option(help="Only this task id.")] = "",
    purpose: Annotated[str, typer.Option(help="train, before, after, validation, ...")] = "",
    outcome: Annotated[str, typer.Option(help="success, failure, infra or unknown.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Most episodes to list.")] = 20,
    page: Annotated[bool, typer.Option("--page", help="Write report.html instead.")] = False,
) -> None:
    """Look at the episodes of a run: a list, or one with reward and advantage of every step."""
    from rich.console import Console

    from agentrl.store.records import TrajectoryFilter
    from agentrl.store.sqlite import SqliteStore
    from agentrl.viewer.page import write_page
    from agentrl.viewer.terminal import show_trajectories, show_trajectory

    console = Console()
    with SqliteStore(run, read_only=True) as store:
        if page:
            typer.echo(f"wrote {write_page(run, store)}")
        elif episode:
            show_trajectory(store, episode, console)
        else:
            wanted = TrajectoryFilter(
                kind=kind or None,
                task_id=task or None,
                purpose=purpose or None,
                outcome=_outcome(outcome),
                last=True,
                limit=limit,
            )
            show_trajectories(store, wanted, console)


@app.command(name="list")
def list_plugins(
    kind: Annotated[str, typer.Argument(help="env, engine, credit, ...; default: all.")] = "",
    as_json: Json = False,
) -> None:
    """List installed plug-ins by kind."""
    from agentrl.registry import KINDS, names

    found = {one: names(one) for one in ([kind] if kind else KINDS)}
    if as_json:
        _print_json(found)
        return
    for one, installed in found.items():
        typer.echo(f"{one:10} {', '.join(installed) or '-'}")


@app.command()
def check(
    kind: Annotated[str, typer.Argument(help="env or engine.")],
    name: Annotated[str, typer.Argument(help="Plug-in name or module:attr.")],
    options: Annotated[list[str], typer.Argument(metavar="[KEY=VALUE]...")] = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Run the contract suite of its kind on a plug-in and say in words what is wrong."""
    from agentrl.testing.checking import check_plugin

    findings = check_plugin(kind, name, options)
    if as_json:
        _print_json([{"rule": one.rule, "ok": one.ok, "detail": one.detail} for one in findings])
    else:
        for one in findings:
            typer.echo(f"{'ok  ' if one.ok else 'FAIL'} {one.rule}")
            if not one.ok:
                typer.echo(f"     {one.detail}")
    broken = sum(not one.ok for one in findings)
    if not as_json:
        typer.echo(f"{len(findings) - broken} passed, {broken} failed")
    if broken:
        raise typer.Exit(1)


def _outcome(word: str) -> Any:
    """An outcome to filter by; the filter itself refuses a wrong one."""
    return word or None


def _source(path: Path, overrides: list[str]) -> Any:
    """The configuration of a run file, or of a finished run with its trained model."""
    from agentrl.config import load_config
    from agentrl.run_directory import CONFIG_FILE
    from agentrl.train import MODEL_DIRECTORY

    if not path.is_dir():
        return load_config(path, overrides)
    model = path / MODEL_DIRECTORY
    if not (path / CONFIG_FILE).is_file() or not model.is_dir():
        raise ConfigError(
            f"'{path}' is not the directory of a finished run: it needs {CONFIG_FILE} and "
            f"{MODEL_DIRECTORY}/; give a run file or a run directory"
        )
    trained = [f"model.path={model}", "model.create=null"]
    return load_config(path / CONFIG_FILE, [*trained, *overrides])


def _console(as_json: bool) -> Any:
    from rich.console import Console

    return Console(stderr=True) if as_json else Console()


def _print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))


def main() -> None:
    """Entry point of the ``agentrl`` command."""
    sys.path.insert(0, "")  # "my_module:Class" in a run file may lie in the working directory
    try:
        app(standalone_mode=False)
    except ConfigError as error:
        _fail(f"agentrl: {error}", 2)
    except AgentRLError as error:
        _fail(f"agentrl: {type(error).__name__}: {error}", 1)
    except (KeyboardInterrupt, typer.Abort):
        _fail("agentrl: stopped; what was finished is in the run's store", 1)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except Exception as error:
        _usage(error)


def _usage(error: Exception) -> None:
    """Show a misuse of the command line; a bug is shown with its traceback."""
    import click

    if not isinstance(error, click.ClickException):
        raise error
    error.show()
    sys.exit(error.exit_code)


def _fail(text: str, code: int) -> None:
    typer.echo(text, err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
