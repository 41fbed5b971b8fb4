"""Episodes in the terminal: a list of trajectories, one of them as a dialogue with its credit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from agentrl.core.message import Message
from agentrl.core.trajectory import Step
from agentrl.store.records import StoredTrajectory, TrajectoryFilter, TrajectorySummary
from agentrl.store.sqlite import SqliteStore
from agentrl.viewer.wording import (
    message_parts,
    shortened,
    signed,
    step_credit,
    step_facts,
    visible,
)

__all__ = ["episode_view", "show_trajectories", "show_trajectory", "trajectory_table"]

LIMIT = 2_000
OUTCOME_STYLE = {"success": "green", "failure": "red", "infra": "magenta", "unknown": "yellow"}
LABEL_STYLE = {
    "system": "dim",
    "user": "cyan",
    "tool": "cyan",
    "think": "dim italic",
    "assistant": "bold",
    "call": "bold",
}
LABELS = {"assistant": "action"}


def show_trajectories(store: SqliteStore, wanted: TrajectoryFilter, console: Console) -> None:
    """Print the trajectories that match, and how many more there are."""
    lines = store.find(wanted)
    console.print(trajectory_table(lines))
    total = store.count(wanted)
    if total > len(lines):
        console.print(Text(f"{len(lines)} of {total:,} shown; filter, or raise the limit"))


def show_trajectory(
    store: SqliteStore, trajectory_id: str, console: Console, *, limit: int | None = LIMIT
) -> None:
    """Print one episode step by step, and what its siblings came to.

    Args:
        store: Store of the run.
        trajectory_id: Which.
        console: Where to.
        limit: Longest text of one message; ``None``: all of it.

    Raises:
        StoreError: there is no such trajectory.
    """
    stored = store.trajectory(trajectory_id)
    console.print(episode_view(stored, store.siblings(trajectory_id), limit=limit))


def trajectory_table(lines: Sequence[TrajectorySummary]) -> RenderableType:
    """One row for each trajectory."""
    if not lines:
        return Text("no trajectory matches")
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("id", overflow="fold")
    table.add_column("purpose")
    table.add_column("kind", max_width=16, no_wrap=True)
    table.add_column("outcome")
    table.add_column("reward", justify="right")
    table.add_column("steps", justify="right")
    table.add_column("advantage", justify="right", no_wrap=True)
    table.add_column("ended by", no_wrap=True)
    for line in lines:
        table.add_row(
            Text(visible(line.id)),
            Text(f"{visible(line.purpose)} {line.iteration}"),
            Text(visible(line.kind)),
            Text(line.outcome, style=OUTCOME_STYLE[line.outcome]),
            _number(line.reward),
            str(line.steps),
            _range(line),
            Text(visible(line.failure.error if line.failure else line.stop_reason.value)),
        )
    return table


def episode_view(
    stored: StoredTrajectory, siblings: Sequence[TrajectorySummary], *, limit: int | None = LIMIT
) -> RenderableType:
    """One episode as a dialogue: what was shown, what was done, what it earned."""
    parts: list[RenderableType] = [_heading(stored)]
    for position, step in enumerate(stored.trajectory.steps):
        parts += _step(stored, position, step, limit)
    parts += _end(stored, limit)
    if len(siblings) > 1:
        parts.append(_siblings(stored, siblings))
    return Group(*parts)


def _heading(stored: StoredTrajectory) -> RenderableType:
    line = stored.summary
    table = Table.grid(padding=(0, 2))
    rows = {
        "trajectory": line.id,
        "task": f"{line.task_id}  {line.env}, split {line.split}"
        + (f", kind {line.kind}" if line.kind else ""),
        "played": f"{line.purpose}, iteration {line.iteration}, trial {line.trial}, "
        f"attempt {line.attempt}, seed {stored.trajectory.seed}",
        "result": f"{line.outcome}, reward {_number(line.reward)}, {line.steps} steps, "
        f"{line.sampled_tokens} tokens, {line.wall_s:.1f} s",
    }
    for name, text in rows.items():
        style = OUTCOME_STYLE[line.outcome] if name == "result" else ""
        table.add_row(Text(name, style="dim"), Text(visible(text), style=style))
    return table


def _step(
    stored: StoredTrajectory, position: int, step: Step, limit: int | None
) -> Iterator[RenderableType]:
    facts = "  ".join(step_facts(step))
    yield Rule(
        Text.assemble((f"step {position}", "bold"), "  ", (visible(facts), "dim")),
        align="left",
        style="dim",
    )
    for message in step.shown:
        yield _message(message, limit)
    yield _message(step.action, limit)
    yield Padding(_earned(stored, position, step), (0, 0, 0, 8))


def _message(message: Message, limit: int | None) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=7, justify="right")
    table.add_column(overflow="fold")
    for label, text in message_parts(message):
        style = LABEL_STYLE[label]
        table.add_row(
            Text(LABELS.get(label, label), style="dim"),
            Text(visible(shortened(text, limit)) or "(empty)", style=style),
        )
    return table


def _earned(stored: StoredTrajectory, position: int, step: Step) -> Text:
    line = Text()
    if step.result is not None:
        line.append(f"reward {_number(step.reward)}")
        line.append("  valid" if step.result.action_valid else "  invalid", style="dim")
    credit = step_credit(stored, position)
    if credit is None:
        return line
    style = "green" if credit.advantage > 0 else "red" if credit.advantage < 0 else "dim"
    line.append("  advantage ")
    line.append(signed(credit.advantage), style=f"bold {style}")
    words = credit.words()
    if words:
        line.append(f"  ({visible(words)})", style="dim")
    return line


def _end(stored: StoredTrajectory, limit: int | None) -> Iterator[RenderableType]:
    trajectory = stored.trajectory
    reason = Text.assemble(("end  ", "bold"), trajectory.stop_reason.value)
    if stored.credit is None:
        reason.append("  no credit was recorded", style="dim")
    elif stored.credit.step_advantages is None:
        reason.append("  took no part in credit", style="dim")
    yield Rule(reason, align="left", style="dim")
    for message in trajectory.final_shown:
        yield _message(message, limit)
    for name, failure in (("failed", trajectory.failure), ("close", trajectory.close_failure)):
        if failure is not None:
            words = f"{name} at {failure.boundary}: {failure.error}: {failure.message}"
            yield Text(visible(shortened(words, limit)), style=OUTCOME_STYLE["infra"])


def _siblings(stored: StoredTrajectory, siblings: Sequence[TrajectorySummary]) -> RenderableType:
    table = Table(title="its group", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("", "trial", "outcome", "reward", "steps", "advantage", "ended by"):
        table.add_column(name)
    for line in siblings:
        here = line.id == stored.trajectory.id
        table.add_row(
            ">" if here else "",
            f"{line.trial}" + (f" (attempt {line.attempt})" if line.attempt else ""),
            Text(line.outcome, style=OUTCOME_STYLE[line.outcome]),
            _number(line.reward),
            str(line.steps),
            _range(line),
            Text(visible(line.failure.error if line.failure else line.stop_reason.value)),
            style="bold" if here else "",
        )
    return table


def _number(number: float | None) -> str:
    return "unscored" if number is None else f"{number:g}"


def _range(line: TrajectorySummary) -> str:
    if line.advantage_low is None or line.advantage_high is None:
        return "" if line.takes_part is None else "no part"
    low, high = signed(line.advantage_low), signed(line.advantage_high)
    return low if low == high else f"{low} .. {high}"
