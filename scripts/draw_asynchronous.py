"""Draws what ``benchmarks/asynchronous.py --json`` measured.

    python benchmarks/asynchronous.py --json > measured.txt
    python scripts/draw_asynchronous.py measured.txt docs/assets/asynchronous.svg

Left: success on the validation panel against the time since the start of the run, one thin line for
each run, dots where it was measured. Right: the time until the last iteration was over, its mean
over seeds, and the success on the test panel after it. Every number is read from the last line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

COLOURS = ("#6b6b6b", "#1f77b4", "#d95f02", "#1b9e77", "#7570b3")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 860, 330, 56, 46, 46
PLOT, BARS = 440, 560
STYLE = "font: 13px sans-serif; fill: #222"


def drawn(measured: Mapping[str, Any]) -> str:
    """The picture as SVG."""
    runs: Sequence[Mapping[str, Any]] = measured["runs"]
    bounds = sorted({one["staleness"] for one in runs})
    colours = {bound: COLOURS[place % len(COLOURS)] for place, bound in enumerate(bounds)}
    longest = max(one["wall_s"] for one in runs)
    lines = [*_axes(longest), *_curves(runs, colours, longest), *_bars(runs, colours)]
    body = "\n".join(f"  {line}" for line in lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="success and time with and without rollouts beside the learner">\n'
        f'  <rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n'
    )


def _text(x: float, y: float, words: str, *, anchor: str = "start", weight: str = "") -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="{STYLE}"{bold}>{words}</text>'
    )


def _x(seconds: float, longest: float) -> float:
    return LEFT + (PLOT - LEFT) * seconds / longest


def _y(success: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - success)


def _axes(longest: float) -> Iterator[str]:
    yield _text(LEFT, 22, "success on the validation panel", weight="bold")
    for success in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _y(success)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{PLOT}" y2="{y:.1f}" stroke="#e4e4e4"/>'
        yield _text(LEFT - 6, y + 4, f"{success:.0%}", anchor="end")
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        seconds = share * longest
        yield _text(_x(seconds, longest), HEIGHT - BOTTOM + 18, f"{seconds:.0f}", anchor="middle")
    yield _text((LEFT + PLOT) / 2, HEIGHT - 8, "seconds since the start", anchor="middle")


def _curves(
    runs: Sequence[Mapping[str, Any]], colours: Mapping[int, str], longest: float
) -> Iterator[str]:
    for one in runs:
        places = [(_x(seconds, longest), _y(success)) for seconds, success in one["validation"]]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        colour = colours[one["staleness"]]
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        for x, y in places:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>'


def _bars(runs: Sequence[Mapping[str, Any]], colours: Mapping[int, str]) -> Iterator[str]:
    yield _text(BARS - 70, 22, "time of the same iterations, success after them", weight="bold")
    means = {}
    for bound in colours:
        mine = [one for one in runs if one["staleness"] == bound]
        means[bound] = (
            fmean(one["wall_s"] for one in mine),
            fmean(one["after"] for one in mine),
        )
    most = max(seconds for seconds, _ in means.values())
    first = next(iter(means.values()))[0]
    for place, (bound, (seconds, success)) in enumerate(means.items()):
        y = TOP + 24 + 62 * place
        name = "synchronous" if bound == 0 else f"staleness {bound}"
        width = (WIDTH - BARS - 150) * seconds / most
        yield _text(BARS - 6, y + 16, name, anchor="end")
        yield (
            f'<rect x="{BARS}" y="{y}" width="{width:.1f}" height="24" fill="{colours[bound]}"/>'
        )
        yield _text(BARS + width + 8, y + 11, f"{seconds:.0f} s ({seconds / first:.2f})")
        yield _text(BARS + width + 8, y + 27, f"success {success:.1%}")


def main(arguments: Sequence[str]) -> int:
    """Read the last line of the first file, write the second."""
    source, target = map(Path, arguments)
    target.write_text(drawn(json.loads(source.read_text().splitlines()[-1])), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
