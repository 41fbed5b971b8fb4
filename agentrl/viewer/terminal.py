"""Episodes in the terminal: a list of trajectories, one of them as a dialogue with its credit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
from agentrl.viewer.absent import absent_lines
from agentrl.viewer.diagnostics import diagnostics_lines
from agentrl.viewer.load import load_lines
from agentrl.viewer.prompts import Decode, prompt_parts
from agentrl.viewer.wording import (
    ended_by,
    message_parts,
    shortened,
    signed,
    step_credit,
    step_facts,
    visible,
)

__all__ = [
    "ADVANTAGE_STYLES",
    "OUTCOME_STYLE",
    "episode_view",
    "message_view",
    "number",
    "show_diagnostics",
    "show_load",
    "show_trajectories",
    "show_trajectory",
    "trajectory_table",
]

LIMIT = 2_000
EXPENDABLE = ("ended by", "kind", "purpose", "steps", "advantage")
OUTCOME_STYLE = {"success": "green", "failure": "red", "infra": "magenta", "unknown": "yellow"}
ADVANTAGE_STYLES = {1: "bold green", 0: "dim", -1: "bold red"}
LABEL_STYLE = {
    "system": "dim",
    "user": "cyan",
    "tool": "cyan",
    "think": "dim italic",
    "assistant": "bold",
    "call": "bold",
}
LABELS = {"assistant": "action"}


def show_trajectories(store: SqliteStore, wanted: TrajectoryFilter, console: Console) -> bool:
    """Print the trajectories that match, and how many more there are; or what there is instead.

    Returns:
        Whether any matches.
    """
    lines = store.find(wanted)
    if not lines:
        _show_absent(store, wanted, console)
        return False
    console.print(trajectory_table(lines, console.width))
    total = store.count(wanted)
    if total > len(lines):
        console.print(Text(f"{len(lines)} of {total:,} shown; filter, or raise the limit"))
    return True


def _show_absent(store: SqliteStore, wanted: TrajectoryFilter, console: Console) -> None:
    held = store.find()
    if not held:
        console.print(Text("no episode was played yet"))
        return
    title = f"no episode matches; of {len(held):,} in this run there are"
    _show_lines(title, list(absent_lines(wanted, held)), console)


def show_diagnostics(iteration: int, metrics: Mapping[str, Any], console: Console) -> None:
    """Print what the credit of an iteration came to, if anything of it is known."""
    _show_lines(f"credit of iteration {iteration}", list(diagnostics_lines(metrics)), console)


def show_load(iteration: int, data: Mapping[str, Any], console: Console) -> None:
    """Print where the time of an iteration's rollout went."""
    _show_lines(f"rollout of iteration {iteration}", list(load_lines(data)), console)


def _show_lines(title: str, lines: Sequence[tuple[str, str]], console: Console) -> None:
    if not lines:
        return
    table = Table.grid(padding=(0, 2))
    for subject, words in lines:
        table.add_row(Text(visible(subject), style="dim"), Text(visible(words)))
    console.print(Text(title, style="bold"))
    console.print(Padding(table, (0, 0, 0, 2)))


def show_trajectory(
    store: SqliteStore,
    trajectory_id: str,
    console: Console,
    *,
    limit: int | None = LIMIT,
    decode: Decode | None = None,
) -> None:
    """Print one episode step by step, and what its siblings came to.

    Args:
        store: Store of the run.
        trajectory_id: Which.
        console: Where to.
        limit: Longest text of one message; ``None``: all of it.
        decode: Show prompts and answers as this reads their token ids; ``None``: as messages.

    Raises:
        StoreError: there is no such trajectory.
    """
    stored = store.trajectory(trajectory_id)
    siblings = store.siblings(trajectory_id)
    console.print(episode_view(stored, siblings, limit=limit, decode=decode))


def trajectory_table(lines: Sequence[TrajectorySummary], width: int = 120) -> RenderableType:
    """One row for each trajectory. Ids stand whole: they are there to be copied.

    Columns that do not fit into ``width`` are left out, the least telling first.
    """
    if not lines:
        return Text("no trajectory matches")
    rows = [_cells(line) for line in lines]
    widths = {name: max(len(name), *(row[name].cell_len for row in rows)) + 3 for name in rows[0]}
    shown = list(widths)
    for name in EXPENDABLE:
        if sum(widths[one] for one in shown) > width:
            shown.remove(name)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in shown:
        justify: Any = "right" if name in ("reward", "steps", "advantage") else "left"
        least = widths[name] - 3 if name == "id" else None
        table.add_column(name, justify=justify, no_wrap=True, overflow="fold", min_width=least)
    for row in rows:
        table.add_row(*(row[name] for name in shown))
    return table


def _cells(line: TrajectorySummary) -> dict[str, Text]:
    return {
        "id": Text(visible(line.id)),
        "purpose": Text(f"{visible(line.purpose)} {line.iteration}"),
        "kind": Text(visible(line.kind)),
        "outcome": Text(line.outcome, style=OUTCOME_STYLE[line.outcome]),
        "reward": Text(number(line.reward)),
        "steps": Text(str(line.steps)),
        "advantage": Text(_range(line)),
        "ended by": Text(visible(ended_by(line))),
    }


def episode_view(
    stored: StoredTrajectory,
    siblings: Sequence[TrajectorySummary],
    *,
    limit: int | None = LIMIT,
    decode: Decode | None = None,
) -> RenderableType:
    """One episode as a dialogue: what was shown, what was done, what it earned."""
    parts: list[RenderableType] = [_heading(stored)]
    for position, step in enumerate(stored.trajectory.steps):
        parts += _step(stored, position, step, limit, decode)
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
        "result": f"{line.outcome}, reward {number(line.reward)}, {line.steps} steps, "
        f"{line.sampled_tokens} tokens, {line.wall_s:.1f} s",
    }
    for name, text in rows.items():
        style = OUTCOME_STYLE[line.outcome] if name == "result" else ""
        table.add_row(Text(name, style="dim"), Text(visible(text), style=style))
    return table


def _step(
    stored: StoredTrajectory, position: int, step: Step, limit: int | None, decode: Decode | None
) -> Iterator[RenderableType]:
    facts = "  ".join(step_facts(step))
    yield Rule(
        Text.assemble((f"step {position}", "bold"), "  ", (visible(facts), "dim")),
        align="left",
        style="dim",
    )
    if decode is None:
        for message in step.shown:
            yield message_view(message, limit)
        if step.answer is not None:
            yield _labelled(
                [("said", text, LABEL_STYLE[label]) for label, text in _said(step)], limit
            )
        yield message_view(step.action, limit)
    else:
        yield _tokens(stored.trajectory.steps, position, limit, decode)
    yield Padding(_earned(stored, position, step), (0, 0, 0, 8))


def _said(step: Step) -> Iterator[tuple[str, str]]:
    """What the model said where that is more than the action: the action itself is shown apart."""
    for label, text in message_parts(step.said):
        yield ("system" if label == "assistant" else label), text


def message_view(message: Message, limit: int | None) -> RenderableType:
    """One message: thoughts, text and calls, each with its label."""
    rows = [
        (LABELS.get(label, label), text, LABEL_STYLE[label])
        for label, text in message_parts(message)
    ]
    return _labelled(rows, limit)


def _labelled(rows: Sequence[tuple[str, str, str]], limit: int | None) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=7, justify="right")
    table.add_column(overflow="fold")
    for label, text, style in rows:
        shown = Text(visible(shortened(text, limit)) or "(empty)", style=style)
        table.add_row(Text(label, style="dim"), shown)
    return table


def _tokens(
    steps: Sequence[Step], position: int, limit: int | None, decode: Decode
) -> RenderableType:
    """The prompt as the policy got it, and what it sampled, read from the recorded ids."""
    kept, added = prompt_parts(steps, position)
    rows: list[tuple[str, str, str]] = []
    if kept:
        rows.append(("", f"the {kept:,} tokens so far, and", "dim italic"))
    elif position:
        rows.append(("", "the history was rewritten: a new training row begins", "dim italic"))
    rows.append(("prompt", decode(added), LABEL_STYLE["user"]))
    rows.append(("sampled", decode(steps[position].sample.token_ids), LABEL_STYLE["assistant"]))
    return _labelled(rows, limit)


def _earned(stored: StoredTrajectory, position: int, step: Step) -> Text:
    line = Text()
    if step.result is not None:
        line.append(f"reward {number(step.reward)}")
        line.append("  valid" if step.result.action_valid else "  invalid", style="dim")
    credit = step_credit(stored, position)
    if credit is None:
        return line
    sign = (credit.advantage > 0) - (credit.advantage < 0)
    line.append("  advantage ")
    line.append(signed(credit.advantage), style=ADVANTAGE_STYLES[sign])
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
        yield message_view(message, limit)
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
            number(line.reward),
            str(line.steps),
            _range(line),
            Text(visible(ended_by(line))),
            style="bold" if here else "",
        )
    return table


def number(reward: float | None) -> str:
    """A reward; what could not be scored is not 0."""
    return "unscored" if reward is None else f"{reward:g}"


def _range(line: TrajectorySummary) -> str:
    if line.advantage_low is None or line.advantage_high is None:
        return "" if line.takes_part is None else "no part"
    low, high = signed(line.advantage_low), signed(line.advantage_high)
    return low if low == high else f"{low} .. {high}"
