"""A comparison as tables."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentrl.comparing.comparison import Comparison, spent
from agentrl.comparing.curves import AxisCurves
from agentrl.comparing.runs import ComparedRun
from agentrl.comparing.scores import Pair
from agentrl.comparing.seeds import SeedEstimate

__all__ = ["show_comparison"]

SHOWN = 4  # budgets of a curve that are printed: quarters of what all have in common
NAMES = {"episodes": "episodes", "tokens": "sampled tokens", "wall_s": "seconds"}


def show_comparison(done: Comparison, console: Console) -> None:
    """Print the runs, the curves at equal budgets, the final scores and what differs."""
    console.print(_runs(done))
    for axis in done.curves.axes:
        if axis.budgets:
            console.print(_curves(done, axis))
    if done.scores:
        console.print(_scores(done))
    for pair in done.pairs:
        console.print(_words(pair), highlight=False, markup=False)
    for note in done.notes:
        console.print(Text(f"note: {note}.", style="dim"))


def _table(title: str, *columns: str) -> Table:
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0)
    )
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    return table


def _runs(done: Comparison) -> Table:
    table = _table("Runs", "group", "run", "seed", "episodes", "tokens", "seconds", "final success")
    for group in done.groups:
        for run in group.runs:
            episodes, tokens, seconds = spent(run)
            table.add_row(
                Text(group.label),
                Text(run.name),
                str(run.seed),
                f"{episodes:,}",
                f"{tokens:,}",
                f"{seconds:,.0f}",
                _final(run),
            )
    return table


def _final(run: ComparedRun) -> Text:
    if "sampled" in run.scores:
        return Text(f"{run.scores['sampled'].success:.1%}")
    return Text("unfinished" if not run.finished else "-", style="yellow")


def _curves(done: Comparison, axis: AxisCurves) -> Table:
    last = len(axis.budgets) - 1
    places = sorted({round(last * part / SHOWN) for part in range(1, SHOWN + 1)})
    title = f"{done.curves.measure.capitalize()} success by {NAMES[axis.axis]}"
    if axis.limited_by:
        title += f" (as far as {axis.limited_by})"
    table = _table(title, "group", *(f"{axis.budgets[place]:,.0f}" for place in places))
    for group, estimates in zip(done.groups, axis.estimates, strict=True):
        if estimates:
            table.add_row(Text(group.label), *(_interval(estimates[place]) for place in places))
    return table


def _scores(done: Comparison) -> Table:
    table = _table(
        "Final success on the test panel", "group", "played", "success", "runs", "interval"
    )
    for one in done.scores:
        runs = f"{one.runs[0]} of {one.runs[1]}"
        table.add_row(Text(one.group), one.how, _interval(one.estimate), runs, one.estimate.method)
    return table


def _interval(estimate: SeedEstimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.1%}"
    return f"{estimate.value:.1%} [{estimate.low:.1%}, {estimate.high:.1%}]"


def _words(pair: Pair) -> str:
    return f"{pair.other} against {pair.first}, {pair.how}: " + "; ".join(_parts(pair)) + "."


def _parts(pair: Pair) -> Iterator[str]:
    tasks, seeds = pair.over_tasks, pair.over_seeds
    yield pair.verdict
    yield (
        f"{_points(tasks.difference)} points [{_points(tasks.low)}, {_points(tasks.high)}] over "
        f"{tasks.tasks:,} tasks, {tasks.improved:,} better and {tasks.worsened:,} worse, sign test "
        f"p = {tasks.p_value:.2g}"
    )
    if tasks.left_out:
        yield f"{tasks.left_out:,} tasks had no scored episode on one side"
    if seeds is not None and seeds.low is not None and seeds.high is not None:
        ends = f"{_points(seeds.low)}, {_points(seeds.high)}"
        yield f"{_points(seeds.value)} [{ends}] by {seeds.method}"


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"
