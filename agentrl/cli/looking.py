"""Commands that look at what a run left: ``view`` and ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentrl.cli.app import Json, RunDirectory, app, console, print_json
from agentrl.core.errors import ConfigError, StoreError, nearest
from agentrl.core.trajectory import StopReason

if TYPE_CHECKING:
    from agentrl.store.records import Range, TrajectoryFilter
    from agentrl.store.sqlite import SqliteStore

NEAREST_OF = 2_000  # names that a misspelt one is compared with: more would take seconds
OUTCOMES = ("success", "failure", "infra", "unknown")

Kind = Annotated[str, typer.Option(help="Only tasks of this kind.")]
TaskId = Annotated[str, typer.Option("--task", help="Only this task id.")]
Purpose = Annotated[str, typer.Option(help="Only train, before, after, validation, ...")]
Outcome = Annotated[
    str, typer.Option(help=f"Only {', '.join(OUTCOMES)}.", autocompletion=lambda: list(OUTCOMES))
]
Stop = Annotated[
    str,
    typer.Option(
        "--stop",
        help="Only what ended so: terminated, max_steps, ...",
        autocompletion=lambda: _STOPS,
    ),
]
Iteration = Annotated[int | None, typer.Option(min=0, help="Only this iteration.")]
Reward = Annotated[str, typer.Option(help="Only rewards in LOW..HIGH; either end may be left out.")]
Advantage = Annotated[
    str, typer.Option(help="Only episodes with a step whose advantage is in LOW..HIGH.")
]
_STOPS = [reason.value for reason in StopReason]


@app.command(rich_help_panel="Look")
def view(
    run: RunDirectory,
    episode: Annotated[
        str, typer.Argument(help="Id of one episode, or how it begins, to see it step by step.")
    ] = "",
    group: Annotated[
        str,
        typer.Option(help="Show a group's episodes side by side: its id, or how that begins."),
    ] = "",
    kind: Kind = "",
    task: TaskId = "",
    purpose: Purpose = "",
    outcome: Outcome = "",
    stop: Stop = "",
    iteration: Iteration = None,
    reward: Reward = "",
    advantage: Advantage = "",
    limit: Annotated[int, typer.Option(min=1, help="Most episodes to list.")] = 20,
    prompts: Annotated[
        bool, typer.Option("--prompts", help="The exact prompts and answers, from their tokens.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Cut no text, however long.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Write report.html instead.")] = False,
    as_json: Json = False,
) -> None:
    """Look at the episodes of a run: a list, one of them, or a group side by side.

    The newest come first. Reward and advantage take a range: 1..1, 0.5.. or ..-0.1
    """
    from agentrl.store.sqlite import SqliteStore

    if page + bool(group) + bool(episode) > 1:
        raise ConfigError("give one of EPISODE, --group and --page, not several")
    if prompts and not episode:
        raise ConfigError("--prompts shows the prompts of one episode: name its id")
    wanted = _filter(
        kind, task, purpose, outcome, stop, iteration, reward, advantage, last=True, limit=limit
    )
    with SqliteStore(run, read_only=True) as store:
        if page:
            _page(run, store, as_json)
        elif group:
            _group(store, group, as_json)
        elif episode:
            _episode(run, store, episode, prompts, full, as_json)
        else:
            _list(store, wanted, as_json)


@app.command(rich_help_panel="Look")
def export(
    run: RunDirectory,
    folder: Annotated[Path, typer.Argument(help="New folder for the Parquet files.")],
    kind: Kind = "",
    task: TaskId = "",
    purpose: Purpose = "",
    outcome: Outcome = "",
    stop: Stop = "",
    iteration: Iteration = None,
    reward: Reward = "",
    advantage: Advantage = "",
    as_json: Json = False,
) -> None:
    """Write trajectories and steps as Parquet, which pandas and datasets read."""
    from agentrl.store.export import export as write
    from agentrl.store.sqlite import SqliteStore

    wanted = _filter(kind, task, purpose, outcome, stop, iteration, reward, advantage)
    screen = console(as_json)
    with SqliteStore(run, read_only=True) as store, screen.status("exporting") as status:
        written = write(
            store,
            folder,
            wanted,
            on_progress=lambda done, total: status.update(f"exporting {done:,} of {total:,}"),
        )
    if as_json:
        print_json(written)
    else:
        typer.echo(f"{written.trajectories:,} trajectories, {written.steps:,} steps in {folder}/")
        typer.echo(f"  datasets.load_dataset({str(folder)!r}, 'steps', split='train')")


def _filter(
    kind: str,
    task: str,
    purpose: str,
    outcome: str,
    stop: str,
    iteration: int | None,
    reward: str,
    advantage: str,
    *,
    last: bool = False,
    limit: int | None = None,
) -> TrajectoryFilter:
    from agentrl.store.records import TrajectoryFilter

    chosen: Any = _one_of("--outcome", outcome, OUTCOMES)
    ended = _one_of("--stop", stop, _STOPS)
    return TrajectoryFilter(
        kind=kind or None,
        task_id=task or None,
        purpose=purpose or None,
        outcome=chosen,
        stop_reason=StopReason(ended) if ended else None,
        iteration=iteration,
        reward=_range("--reward", reward),
        advantage=_range("--advantage", advantage),
        last=last,
        limit=limit,
    )


def _one_of(option: str, word: str, known: Any) -> str | None:
    if word and word not in known:
        raise ConfigError(
            f"{option} '{word}' is unknown{nearest(word, known) or '.'} It may be: "
            f"{', '.join(known)}."
        )
    return word or None


def _range(option: str, text: str) -> Range | None:
    """``LOW..HIGH`` with either end open."""
    if not text:
        return None
    ends = text.split("..")
    try:
        low, high = (float(end) if end.strip() else None for end in ends)
    except ValueError:
        raise ConfigError(
            f"{option} '{text}' must be a range LOW..HIGH such as 0.5..1, 0.5.. or ..-0.1"
        ) from None
    return low, high


def _page(run: Path, store: SqliteStore, as_json: bool) -> None:
    from agentrl.viewer.page import write_page

    path = write_page(run, store)
    if as_json:
        print_json({"page": path})
    else:
        typer.echo(f"wrote {path}")


def _group(store: SqliteStore, given: str, as_json: bool) -> None:
    from agentrl.viewer.explain_choice import find_group
    from agentrl.viewer.side_by_side import group_episodes, show_group

    group_id = find_group(store, given)
    episodes = group_episodes(store, group_id)
    if as_json:
        print_json({"group": group_id, "episodes": episodes})
    else:
        show_group(episodes, console())


def _episode(
    run: Path, store: SqliteStore, given: str, prompts: bool, full: bool, as_json: bool
) -> None:
    from agentrl.viewer.prompts import run_decoder
    from agentrl.viewer.terminal import LIMIT, show_trajectory

    episode = _episode_id(store, given)
    if as_json:
        print_json(store.trajectory(episode))
        return
    decode = run_decoder(run) if prompts else None
    show_trajectory(store, episode, console(), limit=None if full else LIMIT, decode=decode)


def _episode_id(store: SqliteStore, given: str) -> str:
    """The id of the episode that ``given`` is, or begins."""
    try:
        store.trajectory(given)
        return given
    except StoreError:
        known = [line.id for line in store.find()]
        if given in known:
            raise  # it is there, and damaged
    found = [one for one in known if one.startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            f"'{given}' begins the ids of {len(found):,} episodes: {', '.join(found[:5])}"
            f"{', ...' if len(found) > 5 else ''}; give more of the id, or --group for them all"
        )
    hint = nearest(given, known[-NEAREST_OF:])
    raise ConfigError(
        f"no episode '{given}' in this run{hint or '.'} It holds {len(known):,} episodes; "
        "'agentrl view RUN' lists the newest, and --limit more of them"
    )


def _list(store: SqliteStore, wanted: TrajectoryFilter, as_json: bool) -> None:
    from agentrl.viewer.diagnostics import credit_metrics
    from agentrl.viewer.load import newest_load
    from agentrl.viewer.terminal import show_diagnostics, show_load, show_trajectories

    load = newest_load(store, wanted.iteration)
    credit = credit_metrics(store, wanted.iteration)
    if as_json:
        shown = None if credit is None else {"iteration": credit[0], "metrics": credit[1]}
        total, episodes = store.count(wanted), store.find(wanted)
        rollout = None if load is None else {"iteration": load[0], "metrics": load[1]}
        print_json({"total": total, "episodes": episodes, "credit": shown, "rollout": rollout})
        return
    if not show_trajectories(store, wanted, console()):
        return
    if credit is not None:
        show_diagnostics(*credit, console())
    if load is not None:
        show_load(*load, console())
