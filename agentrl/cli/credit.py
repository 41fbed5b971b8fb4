"""Commands about credit: ``credit explain``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentrl.cli.app import Json, RunDirectory, app, console, print_json

if TYPE_CHECKING:
    from agentrl.viewer.explanation import Explanation

credit = typer.Typer(help="Which step got how much of the outcome, and why.", no_args_is_help=True)
app.add_typer(credit, name="credit", rich_help_panel="Look")


@credit.callback()
def _about() -> None:
    """Which step got how much of the outcome, and why."""


@credit.command("explain")
def explain_group(
    run: RunDirectory,
    group: Annotated[
        str,
        typer.Option(help="Id of a group or its beginning; default: the most instructive one."),
    ] = "",
    as_json: Json = False,
) -> None:
    """Say for one group why each step got its credit.

    Which steps were compared with which, what each part of an advantage came from, and why a step
    got none.
    """
    explanation = explained(run, group)
    if as_json:
        print_json(explanation)
        return
    from agentrl.viewer.explain_view import show_explanation

    show_explanation(explanation, console())


def explained(run: Path, group: str) -> Explanation:
    """The explanation of a group of the run in ``run``."""
    from agentrl.store.sqlite import SqliteStore
    from agentrl.viewer.explain import explain
    from agentrl.viewer.explain_choice import find_group, instructive_group, run_estimator

    with SqliteStore(run, read_only=True) as store:
        chosen = ""
        if group:
            group_id = find_group(store, group)
        else:
            group_id, chosen = instructive_group(store)
        used = run_estimator(run, group_id)
        return explain(
            store,
            group_id,
            estimator=used.estimator,
            name=used.name,
            options=used.options,
            unknown=used.unknown,
            chosen=chosen,
        )
