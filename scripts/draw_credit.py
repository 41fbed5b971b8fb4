"""Draws, for each credit estimator, which steps of one toy group are compared with which.

    python scripts/draw_credit.py

Writes docs/assets/credit/NAME.svg: trajectories are rows, steps are cells, and cells of one colour
were compared with one another; the number is what the comparison contributed to the advantage.
Colours and numbers come from the library's own result, none is drawn by hand. A test says when a
picture is out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from agentrl.core.protocols import CreditEstimator
from agentrl.core.trajectory import Group, Step
from agentrl.credit import annotate, columns_of
from agentrl.credit.compared import BATCH, GROUP, compared
from agentrl.registry import make
from agentrl.testing.episodes import act, episode, group
from agentrl.viewer.wording import signed

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "assets" / "credit"
# (state, action) of each step, and the reward of the last.
HALL, AWAY = ("hall", "go kitchen"), ("hall", "go cellar")
LOOK, TAKE, PUT = ("kitchen", "look"), ("kitchen", "take"), ("pantry", "put")
IDLE, STAY = ("cellar", "look"), ("cellar", "wait")
TOY = (
    ("a", 1.0, (HALL, TAKE, PUT)),
    ("b", 0.6, (HALL, LOOK, TAKE, PUT)),
    ("c", 0.0, (AWAY, IDLE, HALL, LOOK)),
    ("d", 0.0, (AWAY, STAY, STAY)),
)
# What annotators would add, by trajectory, one value a step.
HIDDEN = {"hall": (1.0, 0.0), "kitchen": (0.0, 1.0), "pantry": (0.1, 1.0), "cellar": (-1.0, 0.2)}
VOTES = ((1, 1, 1), (1, -1, 1, 1), (-1, -1, 1, -1), (-1, -1, -1))
PROGRESS = ((0.2, 0.3, 0.5), (0.2, 0.0, 0.2, 0.2), (-0.1, 0.0, 0.1, 0.0), (-0.1, 0.0, 0.1))
NODES = (("r", "k", "k1"), ("r", "k", "k2", "k2"), ("r", "l", "l1", "l1"), ("r", "l", "l2"))
PREFIX = ((), (0, 1), (), (0,))
PLANS = ("plan 1", "plan 1", "plan 1", "plan 2")
TAUGHT = {(0, 1): 1.0, (2, 1): -2.0}  # nats by which a skill would have liked the step better
ENTROPY = {1: 0.2, 2: 0.9, 3: 0.4}
SKILLS = {0: 0.8, 2: 0.1, 3: 0.3}

COLOURS = ("#cfe3ff", "#ffe0b8", "#d3f0d0", "#f6cfe0", "#e2d5f7", "#fff3b0", "#c8eeee", "#e8ddd0")
CELL, ROW, LEFT, TOP, GAP, PER_LINE = 74, 54, 78, 44, 26, 3
INK, SOFT, GOOD, BAD = "#17202e", "#5c6675", "#0b6b4a", "#b3261e"


@dataclass(frozen=True)
class Panel:
    """One comparison. ``labels`` and ``values`` by trajectory and step; ``None``: all alike."""

    title: str
    below: str
    values: Sequence[Sequence[float]]
    labels: Sequence[Sequence[int]] | None


def toy(change: Callable[[int, int, Step], Step] | None = None) -> Group:
    """The toy group, each step changed by ``change(trajectory, position, step)``."""
    episodes = []
    for number, (name, reward, steps) in enumerate(TOY):
        acts = []
        for position, (state, action) in enumerate(steps):
            earned = reward if position == len(steps) - 1 else 0.0
            step: Step = act(state, earned, action)
            acts.append(step if change is None else change(number, position, step))
        episodes.append(episode(name, *acts))
    return group("toy", *episodes)


def marked(**by_step: Callable[[int, int, Step], Any]) -> Group:
    """The toy group with annotations."""
    return toy(
        lambda number, position, step: annotate(
            step, **{name: value(number, position, step) for name, value in by_step.items()}
        )
    )


def with_calls(kind: str, annotation: str, values: Mapping[int, float]) -> Group:
    """The toy group with one more step, of ``kind``, at the end of some trajectories."""
    whole, episodes = toy(), []
    for number, one in enumerate(whole.trajectories):
        steps: list[Step] = list(one.steps)
        if number in values:
            call = act(None, action=kind, kind="skill" if kind == "skill" else "summary")
            call = replace(call, index=len(steps))
            steps.append(annotate(call, **{annotation: values[number]}))
        episodes.append(replace(one, steps=tuple(steps)))
    return replace(whole, trajectories=tuple(episodes))


def _teacher(number: int, position: int, step: Step) -> tuple[float, ...]:
    return tuple(x + TAUGHT.get((number, position), 0.0) for x in step.sample.logprobs)


def pictured() -> Iterator[tuple[str, CreditEstimator, Group]]:
    """Name, estimator and its toy group, for every picture."""
    groups = {
        "bipace": marked(hidden=lambda n, k, step: HIDDEN[step.anchor]),
        "rlanything": marked(votes=lambda n, k, step: (VOTES[n][k],)),
        "spa": marked(progress=lambda n, k, step: PROGRESS[n][k]),
        "treerl": marked(node=lambda n, k, step: NODES[n][k]),
        "r3l": marked(prefix=lambda n, k, step: k in PREFIX[n]),
        "himac": marked(
            blueprint=lambda n, k, step: PLANS[n],
            role=lambda n, k, step: "micro" if k else "macro",
        ),
        "opid": marked(episode_teacher_logprobs=_teacher),
        "mmpo": with_calls("summary", "belief_entropy", ENTROPY),
        "seed": with_calls("skill", "skill_reward", SKILLS),
    }
    for name in (*ALONE, *groups):
        yield name, make("credit", name, OPTIONS.get(name)), groups.get(name, toy())


ALONE = (
    *("grpo", "dr_grpo", "rloo", "loop", "pass_at_k", "reinforce_plus_plus"),
    *("reinforce_plus_plus_baseline", "gigpo", "hgpo"),
)
OPTIONS: Mapping[str, Mapping[str, Any]] = {"bipace": {"radius": 0.05}}


def panels(estimator: CreditEstimator, played: Group) -> Iterator[Panel]:
    """One for each part of the advantage, and one for the whole if there are several."""
    columns = columns_of([played])
    result = estimator.assign([played])
    for one in compared(estimator, columns):
        labels = None if one.within in (GROUP, BATCH) else _rows(result.groups[one.within])
        within = one.within if labels is None else f"steps of one {one.within}"
        yield Panel(one.part, f"{one.what}, within {within}", _rows(result.parts[one.part]), labels)
    if result.token_advantages is not None:
        means = [[sum(x) / len(x) for x in row] for row in _rows(result.token_advantages)]
        yield Panel("tokens", "mean of what is added below the step", means, None)
    if len(result.parts) > 1:
        yield Panel("advantage", "the sum", _rows(result.step_advantages), None)


def _rows(values: Sequence[Any]) -> list[Any]:
    return [row for row in values if row is not None]


def picture(estimator: CreditEstimator, played: Group) -> str:
    """The SVG of an estimator's comparisons on a group."""
    drawn = list(panels(estimator, played))
    longest = max(len(one.steps) for one in played.trajectories)
    width = LEFT + CELL * longest + GAP
    height = TOP + ROW * len(played.trajectories) + GAP
    across = min(len(drawn), PER_LINE)
    size = (width * across, height * -(-len(drawn) // PER_LINE))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" '
        f'width="{size[0]}" height="{size[1]}" font-family="sans-serif" role="img">',
        f'<rect width="{size[0]}" height="{size[1]}" fill="#ffffff"/>',
    ]
    for number, one in enumerate(drawn):
        x, y = width * (number % PER_LINE), height * (number // PER_LINE)
        lines.append(f'<g transform="translate({x} {y})">')
        lines += _panel(one, played)
        lines.append("</g>")
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(panel: Panel, played: Group) -> Iterator[str]:
    yield _text(10, 18, panel.title, 14, INK, bold=True)
    yield _text(10, 34, panel.below, 11, SOFT)
    shared = _colours(panel.labels)
    for row, one in enumerate(played.trajectories):
        y = TOP + ROW * row
        yield _text(10, y + 20, f"trial {one.trial}", 11, INK)
        yield _text(10, y + 34, f"score {one.reward:g}", 11, SOFT)
        for column, step in enumerate(one.steps):
            # The last bits differ between machines.
            value = round(panel.values[row][column], 9)
            label = None if panel.labels is None else panel.labels[row][column]
            colour = shared.get(label) if label is not None else COLOURS[0] if value else None
            if panel.title in ("advantage", "tokens"):
                colour = "#f4f5f7"
            yield _cell(LEFT + CELL * column, y, colour)
            at = LEFT + CELL * column + 6
            if step.kind == "act":
                yield _text(at, y + 14, str(step.anchor), 11, INK)
                yield _text(at, y + 27, step.action.content, 10, SOFT)
            else:
                yield _text(at, y + 14, step.kind, 11, INK)
            ink = GOOD if value > 0 else BAD if value < 0 else SOFT
            yield _text(at, y + 44, signed(value), 13, ink, bold=value != 0)


def _colours(labels: Sequence[Sequence[int]] | None) -> Mapping[int, str]:
    """Colours of the clusters of two and more steps, by first appearance."""
    flat = [label for row in labels or () for label in row if label >= 0]
    shared = [label for label in dict.fromkeys(flat) if flat.count(label) > 1]
    return {label: COLOURS[k % len(COLOURS)] for k, label in enumerate(shared)}


def _cell(x: int, y: int, colour: str | None) -> str:
    """A box; dashed and white where a step was compared with nothing, or is left at 0."""
    look = f'fill="{colour}" stroke="#8a94a3"'
    if colour is None:
        look = 'fill="#ffffff" stroke="#8a94a3" stroke-dasharray="3 3"'
    return f'<rect x="{x}" y="{y}" width="{CELL - 4}" height="{ROW - 4}" rx="4" {look}/>'


def _text(x: int, y: int, words: str, size: int, colour: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}"{weight}>{escape(words)}</text>'
    )


def pictures() -> dict[str, str]:
    """File name to content of every picture."""
    return {f"{name}.svg": picture(estimator, played) for name, estimator, played in pictured()}


def main() -> None:
    """Write the pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
