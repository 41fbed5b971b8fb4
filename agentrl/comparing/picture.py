"""A comparison as curves over episodes, tokens and time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentrl.comparing.comparison import Comparison
from agentrl.comparing.curves import AxisCurves, series
from agentrl.core.errors import ConfigError

__all__ = ["SUFFIXES", "write_picture"]

SUFFIXES = (".png", ".svg", ".pdf")
# Okabe and Ito's colours, which stay apart for the colour-blind.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
NAMES = {"episodes": "training episodes", "tokens": "sampled tokens", "wall_s": "seconds"}


def write_picture(done: Comparison, path: Path) -> None:
    """Draw each group's mean over seeds with its interval, and every run as a thin line.

    Runs that are not finished are dashed; beyond the common budget there are only thin lines.

    Raises:
        ConfigError: the name's ending is no format, nothing can be drawn, or the file cannot be
            written.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"the picture '{path}' must end with {', '.join(SUFFIXES)}, got '{path.suffix}'"
        )
    if not done.curves.axes:
        raise ConfigError("no run has a measurement yet, so there is no curve to draw")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(13, 4.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(done.curves.axes), sharey=True, squeeze=False)[0]
    for axes, axis in zip(panels, done.curves.axes, strict=True):
        _draw(axes, done, axis)
        axes.set_xlabel(NAMES[axis.axis])
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.grid(axis="y", color="#e5e7eb", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(f"{done.curves.measure} success")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    try:
        figure.savefig(path)
    except OSError as error:
        raise ConfigError(f"cannot write the picture '{path}': {error.strerror}") from None


def _draw(axes: Any, done: Comparison, axis: AxisCurves) -> None:
    for number, (group, estimates) in enumerate(zip(done.groups, axis.estimates, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        for run in group.runs:
            points = series(run, axis.axis, done.curves.measure)
            axes.plot(
                [place for place, _ in points],
                [success for _, success in points],
                color=colour,
                linewidth=0.8,
                alpha=0.45,
                linestyle="-" if run.finished else "--",
            )
        if not estimates:
            continue
        seeds = f"{len(group.runs)} seeds" if len(group.runs) > 1 else "1 seed"
        axes.plot(
            axis.budgets,
            [one.value for one in estimates],
            color=colour,
            linewidth=2.2,
            marker="o" if len(estimates) == 1 else "",
            label=f"{group.label} ({seeds})",
        )
        lows = [one.value if one.low is None else one.low for one in estimates]
        highs = [one.value if one.high is None else one.high for one in estimates]
        axes.fill_between(axis.budgets, lows, highs, color=colour, alpha=0.15, linewidth=0)
