"""What a person sees while a run works: a live line and a panel a stage, one line a validation.

Where no terminal is (the log of a CI job or a batch system) plain lines say the same now and then.
"""

from __future__ import annotations

import itertools
import threading
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

__all__ = ["LivePanel", "Progress", "StageLog", "StageProgress"]

WINDOW_S = 20.0  # what the panel calls now
SLOW_S = 5.0  # a call that lasts longer is shown
REFRESHES_PER_S = 2.0
LINE_EVERY_S = 30.0  # between the lines of a stage in a log
LOGGED = ("in flight", "episodes", "engine", "slowest")  # of the panel


@dataclass(frozen=True, slots=True)
class StageProgress:
    """The live line of one stage, or its lines in a log."""

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
                f"[{shown.low:.1%}, {shown.high:.1%}]",
                soft_wrap=True,
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


class StageLog:
    """A stage in plain lines: as it begins, every ``every_s`` seconds, and as it ends.

    The lines in between come from a thread of its own, for an iteration may last for hours.

    Args:
        bars: What counts the stage's steps; it is read, never drawn.
        panel: Says what is being played.
        console: Where the lines go.
        every_s: Seconds between two of them.
        monotonic: The clock of what has passed.
    """

    def __init__(
        self,
        bars: Bars,
        panel: LivePanel | None,
        console: Console,
        *,
        every_s: float = LINE_EVERY_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bars, self._panel, self._console = bars, panel, console
        self._every_s, self._monotonic, self._began_s = every_s, monotonic, monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="progress", daemon=True)

    def __enter__(self) -> StageLog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.say()

    def _repeat(self) -> None:
        while not self._over.wait(self._every_s):
            self.say(playing=True)

    def say(self, *, playing: bool = False) -> None:
        """Print the line; ``playing`` adds what is in flight."""
        for task in self._bars.tasks:
            seconds = self._monotonic() - self._began_s
            parts = [f"{task.description}: {task.completed:,.0f} of {task.total:,.0f}"]
            parts.append(f"{seconds:.0f} s")
            if task.fields["note"]:
                parts.append(task.fields["note"])
            if playing and self._panel is not None:
                parts += [
                    f"{subject} {words}" if subject == "slowest" else words
                    for subject, words in self._panel.lines()
                    if subject in LOGGED
                ]
            _line(self._console, "; ".join(visible(one) for one in parts))


def _line(console: Console, text: str) -> None:
    """One line, however narrow the console is: there is a command or a path in it to be copied."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


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
        of a CI job) there are plain lines.
        """
        terminal = self.console.is_terminal
        bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
        )
        task = bars.add_task(title, total=total, completed=done, note="")
        panel = None if meter is None else LivePanel(bars, meter)
        shown: AbstractContextManager[Any] = bars
        if not terminal:
            shown = StageLog(bars, panel, self.console)
            _line(self.console, f"{title}: begins at {done:,} of {total:,}")
        elif panel is not None:
            shown = Live(panel, console=self.console, refresh_per_second=REFRESHES_PER_S)
        with shown:
            yield StageProgress(bars, task, self.console)

    @contextmanager
    def status(self, text: str) -> Iterator[None]:
        """Show ``text`` while it holds; a log gets it as a line."""
        if not self.console.is_terminal:
            _line(self.console, text)
        with self.console.status(text):
            yield

    def note(self, text: str) -> None:
        """One line for the user."""
        _line(self.console, text)

    def warn(self, text: str) -> None:
        """Something that will cost the user time unless it is mended."""
        self.console.print(Text.assemble(("warning: ", "bold red"), text))

    def report(self, report: RunReport, run_dir: Path) -> None:
        """The outcome, and where to look."""
        self.console.print(to_renderable(report))
        self.note(f"Run directory: {run_dir}")
        self.note(f"  open {run_dir / 'report.html'}   agentrl view {run_dir}")
