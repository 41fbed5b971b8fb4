"""What a person sees while a run works: a live line and a panel a stage, one line an iteration."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from agentrl.core.trajectory import UpdateStats
from agentrl.evaluate.rendering import to_renderable
from agentrl.evaluate.report import CurvePoint, RunReport
from agentrl.rollout.load import Mark, Meter
from agentrl.stages import Iteration
from agentrl.viewer.load import load_lines
from agentrl.viewer.wording import visible

__all__ = ["LivePanel", "Progress", "StageProgress"]

WINDOW_S = 20.0  # what the panel calls now
SLOW_S = 5.0  # a call that lasts longer is shown
REFRESHES_PER_S = 2.0


@dataclass(frozen=True, slots=True)
class StageProgress:
    """The live line of one stage."""

    bars: Bars
    task: Any
    console: Console

    def update(self, stats: UpdateStats) -> None:
        """One optimiser step of a cloning stage is done."""
        nll = stats.metrics.get("nll", float("nan"))
        self.bars.update(self.task, advance=1, note=f"loss {nll:.4f}")

    def iteration(self, done: Iteration, point: CurvePoint) -> None:
        """One rollout and its updates are done."""
        success = "-" if done.success is None else f"{done.success:.0%}"
        note = f"success {success}  rollout {done.rollout_s:.1f} s  update {done.update_s:.1f} s"
        self.bars.update(self.task, advance=1, note=note)
        if point.validation is not None:
            shown = point.validation
            self.console.print(
                f"  iteration {point.iteration + 1:>4}  {point.episodes:>7,} episodes  "
                f"{point.wall_s:>6.0f} s  validation success {shown.success:.1%} "
                f"[{shown.low:.1%}, {shown.high:.1%}]"
            )


class LivePanel:
    """The stage's line, and under it what its runner and engine have done of late.

    Drawn again and again in a thread of rich's own; reading the counters disturbs nobody.

    Args:
        bars: The stage's line.
        meter: Reads the counters; its clock measures the window.
        monotonic: The clock that calls in flight are timed with.
    """

    def __init__(
        self, bars: Bars, meter: Meter, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._bars, self._meter, self._monotonic = bars, meter, monotonic
        self._marks: deque[Mark] = deque([meter.mark()])

    def __rich__(self) -> RenderableType:
        rows = Table.grid(padding=(0, 2))
        for subject, words in self.lines():
            rows.add_row(Text(subject, style="dim"), Text(visible(words)))
        return Group(self._bars.get_renderable(), Padding(rows, (0, 0, 0, 2)))

    def lines(self) -> Iterator[tuple[str, str]]:
        """``(subject, words)``, of the last ``WINDOW_S`` seconds."""
        now = self._meter.mark()
        if now.at_s - self._marks[-1].at_s >= 1.0:
            self._marks.append(now)
        while len(self._marks) > 1 and now.at_s - self._marks[1].at_s >= WINDOW_S:
            self._marks.popleft()
        stats = self._meter.stats
        if stats.in_flight:
            yield "in flight", f"{stats.in_flight:,} episodes, {now.counts.under_way:,} to be done"
        else:
            yield "in flight", "no episode: scoring, learning or testing"
        recent = self._meter.since(self._marks[0]).to_data()
        # Counts are the stage's, for a failure must not vanish; rates are of late.
        counts = {name: value for name, value in now.counts.to_data().items() if name != "timings"}
        yield from load_lines(recent | counts)
        calls = (one for one in stats.waiting() if one.place)  # the longest first
        for one in itertools.islice(calls, 1):
            seconds = self._monotonic() - one.since_s
            if seconds >= SLOW_S:
                yield "slowest", f"{one.episode} ({one.env}) waits {seconds:.0f} s for {one.place}"


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run on a console (a quiet console shows nothing)."""

    console: Console

    @contextmanager
    def stage(
        self, title: str, total: int, done: int = 0, meter: Meter | None = None
    ) -> Iterator[StageProgress]:
        """The live line of a stage of ``total`` steps, ``done`` of them before a kill.

        On a terminal, ``meter`` adds a panel that shows what is being played; elsewhere (in the log
        of a CI job) there are plain lines alone.
        """
        bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
        )
        shown: AbstractContextManager[Any] = bars
        if meter is not None and self.console.is_terminal:
            panel = LivePanel(bars, meter)
            shown = Live(panel, console=self.console, refresh_per_second=REFRESHES_PER_S)
        with shown:
            yield StageProgress(
                bars, bars.add_task(title, total=total, completed=done, note=""), self.console
            )

    @contextmanager
    def status(self, text: str) -> Iterator[None]:
        with self.console.status(text):
            yield

    def note(self, text: str) -> None:
        """One line for the user."""
        self.console.print(text, highlight=False)

    def warn(self, text: str) -> None:
        """Something that will cost the user time unless it is mended."""
        self.console.print(Text.assemble(("warning: ", "bold red"), text))

    def report(self, report: RunReport, run_dir: Path) -> None:
        """The outcome, and where to look."""
        self.console.print(to_renderable(report))
        self.console.print(f"Run directory: {run_dir}", highlight=False)
        self.console.print(f"  open {run_dir / 'report.html'}   agentrl view {run_dir}")
