"""The episodes of one group next to each other: where they met, where they parted, who got what."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from agentrl.store.records import StoredTrajectory, TrajectoryFilter
from agentrl.store.sqlite import SqliteStore
from agentrl.viewer.terminal import ADVANTAGE_STYLES, OUTCOME_STYLE, message_view, number
from agentrl.viewer.wording import ended_by, message_parts, shortened, signed, visible

__all__ = ["group_episodes", "group_view", "show_group"]

NARROWEST = 26  # columns of the terminal that an episode needs to be read
LONGEST = 90  # characters of an action
MARKS = string.ascii_uppercase + string.ascii_lowercase


def group_episodes(store: SqliteStore, group_id: str) -> list[StoredTrajectory]:
    """The episodes of a group by trial and attempt; none if the store has no such group."""
    lines = store.find(TrajectoryFilter(group_id=group_id))
    lines.sort(key=lambda line: (line.trial, line.attempt))
    return [store.trajectory(line.id) for line in lines]


def show_group(episodes: Sequence[StoredTrajectory], console: Console) -> None:
    """Print a group; as many episodes stand side by side as the console has room for."""
    console.print(group_view(episodes, console.width))


def group_view(episodes: Sequence[StoredTrajectory], width: int) -> RenderableType:
    """A group as tables of at most ``width`` columns, one row per step, one column per episode.

    A letter before an action is the state it was taken in: equal letters are equal states, which
    is where step-level credit compares. A state that occurs once has none.
    """
    marks = _marks(episodes)
    beside = max(1, (width - 6) // NARROWEST)
    parts: list[RenderableType] = [_heading(episodes)]
    for start in range(0, len(episodes), beside):
        parts.append(_table(episodes[start : start + beside], marks))
    if marks:
        words = "letters mark equal states; numbers are advantages; ✗ was not a valid action"
        parts.append(Text(words, style="dim"))
    return Group(*parts)


def _heading(episodes: Sequence[StoredTrajectory]) -> RenderableType:
    line = episodes[0].summary
    title = Text.assemble(
        ("group ", "bold"),
        (visible(line.group_id), "bold"),
        f"  {visible(line.kind or line.env)}, {visible(line.purpose)}, iteration {line.iteration}",
    )
    first = episodes[0].trajectory.steps[:1]
    shown = [message_view(one, None) for step in first for one in step.shown]
    return Group(Rule(title, align="left", style="dim"), *shown)


def _table(episodes: Sequence[StoredTrajectory], marks: dict[str, str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False)
    table.add_column("", justify="right", style="dim", width=3, no_wrap=True)
    for one in episodes:
        table.add_column(_title(one), ratio=1, overflow="fold")
    longest = max(len(one.trajectory.steps) for one in episodes)
    for position in range(longest):
        table.add_row(str(position), *(_cell(one, position, marks) for one in episodes))
    return table


def _title(stored: StoredTrajectory) -> Text:
    line = stored.summary
    name = f"trial {line.trial}" + (f".{line.attempt}" if line.attempt else "")
    return Text.assemble(
        (f"{name}  ", ""),
        (line.outcome, OUTCOME_STYLE[line.outcome]),
        (f"\nreward {number(line.reward)}, {visible(ended_by(line))}", "dim"),
    )


def _cell(stored: StoredTrajectory, position: int, marks: dict[str, str]) -> Text:
    if position >= len(stored.trajectory.steps):
        return Text("")
    step = stored.trajectory.steps[position]
    said = " ".join(text for _, text in message_parts(step.action)) or "(empty)"
    cell = Text()
    mark = marks.get(_key(step.anchor))
    if mark is not None:
        cell.append(f"{mark} ", style="bold cyan")
    valid = step.result is None or step.result.action_valid
    cell.append(visible(shortened(" ".join(said.split()), LONGEST)), style="" if valid else "red")
    if not valid:
        cell.append(" ✗", style="red")
    if step.reward:
        cell.append(f"  reward {step.reward:g}", style="bold")
    advantages = stored.credit.step_advantages if stored.credit is not None else None
    if advantages is not None:
        value = advantages[position]
        sign = (value > 0) - (value < 0)
        cell.append(f"  {signed(value)}", style=ADVANTAGE_STYLES[sign])
    return cell


def _marks(episodes: Sequence[StoredTrajectory]) -> dict[str, str]:
    """A letter for each state that occurs more than once, in the order of time."""
    counts: Counter[str] = Counter()
    for one in episodes:
        counts.update(_key(step.anchor) for step in one.trajectory.steps if step.anchor is not None)
    often = [key for key, count in counts.items() if count > 1]
    often.sort(key=lambda key: _first_seen(episodes, key))
    return dict(zip(often, _names(len(often)), strict=True))


def _first_seen(episodes: Sequence[StoredTrajectory], key: str) -> tuple[int, int]:
    return min(
        (position, place)
        for place, one in enumerate(episodes)
        for position, step in enumerate(one.trajectory.steps)
        if _key(step.anchor) == key
    )


def _names(count: int) -> list[str]:
    return [
        MARKS[number % len(MARKS)] + (str(number // len(MARKS)) if number >= len(MARKS) else "")
        for number in range(count)
    ]


def _key(anchor: Any) -> str:
    return repr(anchor)
