"""The learning curve as an inline SVG: no script, no font, no file beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["curve_svg"]

WIDTH, HEIGHT = 860, 330
LEFT, RIGHT, TOP, BOTTOM = 52, 24, 16, 44


def curve_svg(report: Mapping[str, Any] | None, curve: Sequence[Mapping[str, Any]]) -> str:
    """Success over training episodes, or an empty string if there is nothing to draw.

    Args:
        report: ``report.json`` of the run, for its test results before and after; ``None`` while
            the run goes on.
        curve: Points as ``report.json`` holds them.
    """
    if not curve and report is None:
        return ""
    end = max((point["episodes"] for point in curve), default=0) or 1
    shapes = [_grid(end if curve else None), _train(curve, end), _validation(curve, end)]
    if report is not None:
        for side, episodes in (("before", 0), ("after", end)):
            shapes.append(_test(report[side], f"test, {side}", _x(episodes, end) - 5, "test"))
            if report[side].get("greedy"):
                greedy = report[side]["greedy"]
                shapes.append(_test(greedy, f"greedy, {side}", _x(episodes, end) + 5, "greedy"))
    return (
        f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="success over training episodes">{"".join(shapes)}</svg>{_legend(report)}'
    )


def _x(episodes: float, end: float) -> float:
    inset = 14  # room for the markers at both ends
    return round(LEFT + inset + (WIDTH - LEFT - RIGHT - 2 * inset) * episodes / end, 1)


def _y(share: float) -> float:
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - share), 1)


def _grid(end: int | None) -> str:
    parts = []
    for percent in (0, 25, 50, 75, 100):
        y = _y(percent / 100)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{percent}%</text>')
    base = HEIGHT - BOTTOM + 20
    if end is None:
        ticks = [(_x(0, 1), "before"), (_x(1, 1), "after")]
    else:
        ticks = [(_x(end * part / 4, end), f"{round(end * part / 4):,}") for part in range(5)]
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(
            f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">training episodes</text>'
        )
    parts += [f'<text x="{x}" y="{base}" text-anchor="middle">{word}</text>' for x, word in ticks]
    return "".join(parts)


def _line(points: Sequence[tuple[float, float]], name: str) -> str:
    path = " ".join(f"{x},{y}" for x, y in points)
    return f'<polyline class="{name}" points="{path}"/>' if points else ""


def _train(curve: Sequence[Mapping[str, Any]], end: int) -> str:
    return _line(
        [
            (_x(point["episodes"], end), _y(point["train_success"]))
            for point in curve
            if point["train_success"] is not None
        ],
        "train",
    )


def _validation(curve: Sequence[Mapping[str, Any]], end: int) -> str:
    points = [
        (_x(one["episodes"], end), one["validation"]) for one in curve if one.get("validation")
    ]
    if not points:
        return ""
    upper = [f"{x},{_y(one['high'])}" for x, one in points]
    lower = [f"{x},{_y(one['low'])}" for x, one in reversed(points)]
    band = f'<polygon class="band" points="{" ".join(upper + lower)}"/>'
    dots = "".join(
        f'<circle class="validation" cx="{x}" cy="{_y(one["success"])}" r="4">'
        f"<title>{escape(_words(one, 'validation'))}</title></circle>"
        for x, one in points
    )
    return band + _line([(x, _y(one["success"])) for x, one in points], "validation") + dots


def _test(report: Mapping[str, Any], label: str, x: float, name: str) -> str:
    low, high, y = _y(report["low"]), _y(report["high"]), _y(report["success"])
    return (
        f'<g class="{name}"><title>{escape(_words(report, label))}</title>'
        f'<line x1="{x}" x2="{x}" y1="{low}" y2="{high}"/>'
        f'<line x1="{x - 4}" x2="{x + 4}" y1="{low}" y2="{low}"/>'
        f'<line x1="{x - 4}" x2="{x + 4}" y1="{high}" y2="{high}"/>'
        f'<rect x="{x - 4.5}" y="{y - 4.5}" width="9" height="9" rx="2"/></g>'
    )


def _words(report: Mapping[str, Any], label: str) -> str:
    return (
        f"{label}: {report['success']:.1%} [{report['low']:.1%}, {report['high']:.1%}], "
        f"{report['tasks']} tasks"
    )


def _legend(report: Mapping[str, Any] | None) -> str:
    entries = [("train", "training episodes"), ("validation", "validation, with its interval")]
    if report is not None:
        entries.append(("test", "test sampled, before and after"))
        if report["after"].get("greedy"):
            entries.append(("greedy", "test greedy"))
    items = "".join(f'<span class="key {name}">{words}</span>' for name, words in entries)
    return f'<p class="legend">{items}</p>'
