"""The learning curve of a run as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentrl.evaluate.report import RunReport
from agentrl.evaluate.success import SuccessReport

__all__ = ["write_curve"]

TRAIN, VALIDATION, TEST, GREEDY = "#9ca3af", "#2563eb", "#111827", "#d97706"


def write_curve(report: RunReport, path: Path) -> None:
    """Draw success over training episodes: train, validation with its interval, test before/after.

    matplotlib is loaded here, with the Agg canvas and without its global state.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(8, 4.8), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    end = max((point.episodes for point in report.curve), default=1)
    _draw_train(axes, report)
    _draw_validation(axes, report)
    offset = end * 0.012
    _draw_test(axes, report.before.sampled, report.after.sampled, (0 - offset, end - offset), TEST)
    if report.before.greedy is not None and report.after.greedy is not None:
        ends = (offset, end + offset)
        _draw_test(axes, report.before.greedy, report.after.greedy, ends, GREEDY, greedy=True)
    axes.margins(x=0.03)
    axes.set_ylim(-0.02, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("success")
    axes.set_xlabel("training episodes")
    if not report.curve:
        axes.set_xticks([0, end], ["before", "after"])
        axes.set_xlabel("")
        axes.set_xlim(-0.5, end + 0.5)
    axes.set_title(_title(report), loc="left", fontsize=11)
    axes.grid(axis="y", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="best", fontsize=9, frameon=True, framealpha=0.85, edgecolor="none")
    FigureCanvasAgg(figure).print_png(str(path))


def _draw_train(axes: Any, report: RunReport) -> None:
    points = [point for point in report.curve if point.train_success is not None]
    if points:
        axes.plot(
            [point.episodes for point in points],
            [point.train_success for point in points],
            color=TRAIN,
            linewidth=1.2,
            label="train (episodes of the iteration)",
        )


def _draw_validation(axes: Any, report: RunReport) -> None:
    points = [(one.episodes, one.validation) for one in report.curve if one.validation is not None]
    if not points:
        return
    episodes = [count for count, _ in points]
    reports = [one for _, one in points]
    axes.fill_between(
        episodes,
        [one.low for one in reports],
        [one.high for one in reports],
        color=VALIDATION,
        alpha=0.15,
        linewidth=0,
    )
    axes.plot(
        episodes,
        [one.success for one in reports],
        color=VALIDATION,
        linewidth=2,
        marker="o",
        markersize=4,
        label=f"validation ({reports[0].tasks} tasks, {reports[0].confidence:.0%} interval)",
    )


def _draw_test(
    axes: Any,
    before: SuccessReport,
    after: SuccessReport,
    ends: tuple[float, float],
    color: str,
    *,
    greedy: bool = False,
) -> None:
    reports = (before, after)
    axes.errorbar(
        ends,
        [one.success for one in reports],
        yerr=[
            [max(0.0, one.success - one.low) for one in reports],
            [max(0.0, one.high - one.success) for one in reports],
        ],
        fmt="D" if greedy else "s",
        color=color,
        markerfacecolor="white" if greedy else color,
        markersize=7,
        capsize=4,
        linewidth=1.5,
        label=f"test {'greedy' if greedy else 'sampled'}, before and after ({before.tasks} tasks)",
        zorder=4,
    )


def _title(report: RunReport) -> str:
    before, after, paired = report.before.sampled, report.after.sampled, report.paired
    return (
        f"Test success {before.success:.1%} \N{RIGHTWARDS ARROW} {after.success:.1%}   "
        f"(paired {100 * paired.difference:+.1f} points, "
        f"{100 * paired.low:+.1f} to {100 * paired.high:+.1f})"
    )
