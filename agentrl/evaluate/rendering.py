"""A run's report for people: Markdown for its directory, a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from agentrl.evaluate.report import RunReport
from agentrl.evaluate.statistics import PairedDifference
from agentrl.evaluate.success import KindReport, SuccessReport

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["success_table", "summary_lines", "to_markdown", "to_renderable"]

HEADER = ("", "before", "after", "difference on the same tasks")

CURVE_HEADER = ("iteration", "episodes", "tokens", "seconds", "train success", "validation")


def to_markdown(report: RunReport) -> str:
    """The whole report as Markdown."""
    sampled = report.after.sampled
    lines = ["# Report of the run", ""]
    lines += [*summary_lines(report), ""]
    lines += _table(HEADER, _comparison(report))
    if len(sampled.by_kind) > 1:
        lines += ["", "## By kind of task (sampled)", ""]
        lines += _table(("kind", "tasks", "before", "after"), _kinds(report))
    if sampled.pass_rates:
        lines += ["", "## pass@k and pass^k (sampled, after)", ""]
        header = ("rate", "infra failures excluded", "infra failures as failed")
        lines += _table(header, _pass_rates(sampled))
    if report.curve:
        lines += ["", "## Learning curve", "", "![curve](curve.png)", ""]
        lines += _table(CURVE_HEADER, _curve(report))
    return "\n".join(lines) + "\n"


def to_renderable(report: RunReport) -> RenderableType:
    """The report for a rich console: what matters in one look."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(*HEADER, box=box.SIMPLE_HEAD, title=None)
    for row in _comparison(report):
        table.add_row(*(Text(cell) for cell in row))
    parts: list[RenderableType] = [table]
    if len(report.after.sampled.by_kind) > 1:
        kinds = Table("kind", "tasks", "before", "after", box=box.SIMPLE_HEAD)
        for kind_row in _kinds(report):
            kinds.add_row(*(Text(cell) for cell in kind_row))
        parts.append(kinds)
    parts += [Text(line) for line in summary_lines(report)]
    return Group(*parts)


def success_table(report: SuccessReport) -> RenderableType:
    """One evaluation for a rich console, by kind of task."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table("kind", "tasks", "success", box=box.SIMPLE_HEAD)
    for kind, one in report.by_kind.items():
        if len(report.by_kind) > 1:
            table.add_row(Text(kind), str(one.tasks), _interval(one))
    table.add_row("all", str(report.tasks), _interval(report), style="bold")
    table.caption = report.exclusion or None
    return table


def summary_lines(report: RunReport) -> list[str]:
    """The outcome, its evidence, what was left out and what it cost, in sentences."""
    before, after, paired = report.before.sampled, report.after.sampled, report.paired
    lines = [
        f"Success on {after.tasks} test tasks went from {before.success:.1%} to "
        f"{after.success:.1%}; {_verdict(paired, after.confidence)}."
    ]
    named = [("before", before), ("after", after)]
    named += [
        (f"{name}, greedy", one.greedy)
        for name, one in (("before", report.before), ("after", report.after))
        if one.greedy is not None
    ]
    lines += [f"{name.capitalize()}: {one.exclusion}." for name, one in named if one.exclusion]
    if paired.left_out:
        lines.append(f"{paired.left_out} tasks had no scored pair and are not in the difference.")
    episodes = max((point.episodes for point in report.curve), default=0)
    tokens = max((point.tokens for point in report.curve), default=0)
    lines.append(
        f"{episodes:,} training episodes, {tokens:,} sampled tokens, {report.wall_s:,.0f} s, "
        f"peak memory {report.peak_rss_mb:,.0f} MiB."
    )
    return lines


def _verdict(paired: PairedDifference, confidence: float) -> str:
    # Where few tasks differ the interval is too narrow; the sign test is exact there.
    shown = paired.p_value <= 1 - confidence
    if paired.low > 0 and shown:
        word = "it got better"
    elif paired.high < 0 and shown:
        word = "it got worse"
    else:
        word = "no change is shown"
    return (
        f"{word}: {_points(paired)} ({confidence:.0%} interval over {paired.tasks} tasks), "
        f"{paired.improved} tasks better, {paired.worsened} worse, sign test p = "
        f"{paired.p_value:.2g}"
    )


def _comparison(report: RunReport) -> Iterator[Sequence[str]]:
    before, after = report.before, report.after
    yield (
        "sampled",
        _interval(before.sampled),
        _interval(after.sampled),
        _points(report.paired),
    )
    if before.greedy is not None and after.greedy is not None:
        paired = report.paired_greedy
        difference = "" if paired is None else _points(paired)
        yield "greedy", _interval(before.greedy), _interval(after.greedy), difference
    yield "steps an episode", *_means(before.sampled.mean_steps, after.sampled.mean_steps)
    yield "tokens an episode", *_means(before.sampled.mean_tokens, after.sampled.mean_tokens)
    rewards = before.sampled.mean_reward, after.sampled.mean_reward
    if None not in rewards:
        yield "reward", *(f"{one:.3f}" for one in rewards), ""
    broken = before.sampled.infra_failures, after.sampled.infra_failures
    yield "infra failures (excluded)", *(str(one) for one in broken), ""


def _means(before: float, after: float) -> tuple[str, str, str]:
    return f"{before:.1f}", f"{after:.1f}", ""


def _kinds(report: RunReport) -> Iterator[Sequence[str]]:
    before, after = report.before.sampled.by_kind, report.after.sampled.by_kind
    for kind, one in after.items():
        yield kind or "(none)", str(one.tasks), _interval(before.get(kind)), _interval(one)


def _pass_rates(report: SuccessReport) -> Iterator[Sequence[str]]:
    found = {(one.statistic, one.k, one.convention): one for one in report.pass_rates}
    for statistic, k in dict.fromkeys((one.statistic, one.k) for one in report.pass_rates):
        cells = []
        for convention in ("exclude", "fail"):
            one = found[statistic, k, convention]
            value = "n/a" if one.value is None else f"{one.value:.1%}"
            cells.append(f"{value} ({one.tasks} tasks)")
        yield f"{statistic[:-1]}{k}", *cells


def _curve(report: RunReport) -> Iterator[Sequence[str]]:
    for point in report.curve:
        yield (
            str(point.iteration + 1),  # as on the console and in the store
            f"{point.episodes:,}",
            f"{point.tokens:,}",
            f"{point.wall_s:.0f}",
            "-" if point.train_success is None else f"{point.train_success:.1%}",
            _interval(point.validation),
        )


def _interval(report: SuccessReport | KindReport | None) -> str:
    if report is None or report.success is None or report.low is None or report.high is None:
        return "-"
    return f"{report.success:.1%} [{report.low:.1%}, {report.high:.1%}]"


def _points(paired: PairedDifference) -> str:
    return (
        f"{100 * paired.difference:+.1f} points [{100 * paired.low:+.1f}, {100 * paired.high:+.1f}]"
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_row(header), _row(["---"] * len(header)), *(_row(row) for row in rows)]


def _row(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return "| " + " | ".join(escaped) + " |"
